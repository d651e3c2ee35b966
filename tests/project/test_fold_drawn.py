# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Jobs drawn by hypothesis: machines, meshes, collectives, slow chips and late or dead links, each
projected folded and rank by rank. (tests/cpp/fold draws Systems of every awkward kind.)"""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_workload import step_of_calls

import trnsim

# Machine, chips, chips of a pod or server, a link of the first pod where there is one to slow.
PLACES = [
    ("trn2-ultra", 64, 16, "x+ 0>1"),
    ("rainier", 128, 64, "x+ 0>1"),
    ("h100-efa", 32, 8, None),
    ("gb200-nvl72", 64, 16, None),
    ("tpu-v5p", 64, 8, None),
]
KINDS = st.integers(0, 7)  # all_reduce to all_to_all
SIZES = st.sampled_from([0, 4, 68, 4096, 1 << 20, 3 << 22, 1 << 26])
SLOW = st.integers(1, 4)


@st.composite
def jobs(draw):
    """The Workload, the machine, and what is out of the ordinary."""
    machine, world, inner, link = draw(st.sampled_from(PLACES))
    inner = draw(st.sampled_from([inner, inner // 2, 2]))
    groups = {
        "one": "0",
        "inner": f"0..{inner - 1}",
        "outer": f"start 0 axes {inner}x{world // inner}",
        "odd": f"start 0 axes 2x{inner // 2}" if inner > 2 else f"0..{inner - 1}",
    }
    calls = draw(
        st.lists(st.tuples(KINDS, SIZES, st.sampled_from(["", *groups])), min_size=1, max_size=6)
    )
    slow = draw(st.lists(st.tuples(st.integers(0, world - 1), SLOW), max_size=2))
    faults = draw(st.sampled_from([[], [f"{link}=0.5"]])) if link else []
    options = {
        "slow_chips": [f"{chip}={1 + tenths / 10}" for chip, tenths in dict(slow).items()],
        "faults": faults, "collectives": draw(st.sampled_from(["fluid", "fluid", "step"])),
    }  # fmt: skip
    return step_of_calls(world, groups, calls), machine, options


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(jobs())
def test_a_drawn_job_is_the_same_folded_and_not(job):
    workload, machine, options = job
    folded, unfolded = (
        trnsim.project(workload, machine, advise=False, interval=False, fold=fold, **options)
        for fold in (True, False)
    )
    assert folded.to_dict() == unfolded.to_dict()
    assert folded.figures.timeline_hash == unfolded.figures.timeline_hash
    assert len(folded.cohorts.system.ranks) <= len(unfolded.timeline.system.ranks)
