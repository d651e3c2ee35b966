# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Which ranks are captured, and who is taken to do the same; ranks run one by one in here."""

import pytest
import torch
import torch.distributed as dist
from jobs import job

from trnsim.capture.roles import Finder, as_workloads
from trnsim.errors import CaptureError

SIZE = 256


def compute(times=1):
    x = torch.ones(SIZE, SIZE, device="trn")
    for _ in range(times):
        x = x @ x
    return x


def send_and_receive(to, source, group=None):
    out, into = compute(), torch.empty(SIZE, SIZE, device="trn")
    ops = []
    if to is not None:
        ops.append(dist.P2POp(dist.isend, out, to, group))
    if source is not None:
        ops.append(dist.P2POp(dist.irecv, into, source, group))
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def chain(rank, ranks):
    """A pipeline without torch's help: each receives, computes and sends on."""
    x = compute(times=rank + 1)
    if rank > 0:
        dist.recv(x, rank - 1)
    if rank + 1 < ranks:
        dist.send(x @ x, rank + 1)


def ring(rank, ranks):
    send_and_receive((rank + 1) % ranks, (rank - 1) % ranks)


def all_reduce(rank, ranks):
    dist.all_reduce(compute())


class Job:
    """Captures ranks of script(rank, ranks) on demand and remembers which."""

    def __init__(self, script, ranks, **options):
        self.script, self.ranks, self.whole, self.compared = script, ranks, [], []
        self.finder = Finder(self.capture, **options)
        self.roles = self.finder.find(self.run(0))

    def run(self, rank):
        with job(self.ranks, "phantom", rank) as captured:
            for _ in range(2):
                self.script(rank, self.ranks)
                torch.trn.step()
        return captured.workload

    def capture(self, ranks, only_compared):
        (self.compared if only_compared else self.whole).extend(ranks)
        return {rank: self.run(rank) for rank in ranks}

    def ranks_by_captured(self):
        return {role.workload.rank: role.ranks for role in self.roles}


def test_ranks_that_do_the_same_are_one_role_and_two_others_are_looked_at():
    found = Job(all_reduce, 64)
    assert found.ranks_by_captured() == {0: list(range(64))}
    assert found.whole == [] and len(found.compared) == 2
    assert {rank % 2 for rank in found.compared} == {0, 1}
    assert Job(all_reduce, 64).compared == found.compared  # the same ones in every run


def test_every_stage_of_a_chain_is_captured():
    found = Job(chain, 4)
    assert found.ranks_by_captured() == {rank: [rank] for rank in range(4)}
    assert sorted(found.whole) == [1, 2, 3] and found.compared == []


def test_replicas_of_a_pipeline_are_moved_along_and_looked_at():
    def script(rank, ranks):
        stage = rank // (ranks // 4)
        x = compute(times=stage + 1)
        if stage > 0:
            dist.recv(x, rank - ranks // 4)
        if stage < 3:
            dist.send(x, rank + ranks // 4)

    found = Job(script, 64)
    assert found.ranks_by_captured() == {16 * i: list(range(16 * i, 16 * i + 16)) for i in range(4)}
    assert sorted(found.whole) == [16, 32, 48] and len(found.compared) == 2
    names = [(w.role, w.played_by) for w in as_workloads(found.roles)]
    assert names[:2] == [("rank0", "0..15"), ("rank16", "16..31")]


def test_pipelines_of_neighbours_are_found_too():
    def script(rank, ranks):
        x = compute(times=rank % 4 + 1)
        if rank % 4 > 0:
            dist.recv(x, rank - 1)
        if rank % 4 < 3:
            dist.send(x, rank + 1)

    found = Job(script, 32, checked=0)
    assert found.ranks_by_captured() == {i: list(range(i, 32, 4)) for i in range(4)}
    assert as_workloads(found.roles)[1].played_by == "start 1 axes 4x8"


def test_a_ring_is_one_role_without_capturing_all_of_it():
    found = Job(ring, 1024)
    assert found.ranks_by_captured() == {0: list(range(1024))}
    assert sorted(found.whole) == [1, 1023] and len(found.compared) == 2


def test_rings_beside_each_other_are_one_role():
    def script(rank, ranks):
        first = rank - rank % 8
        groups = [dist.new_group(range(at, at + 8)) for at in range(0, ranks, 8)]
        there = lambda i: first + i % 8
        send_and_receive(there(rank + 1), there(rank - 1), groups[first // 8])

    found = Job(script, 32)
    assert found.ranks_by_captured() == {0: list(range(32))}
    assert sorted(found.whole) == [1, 7]


def test_an_odd_first_rank_is_a_role_of_its_own():
    found = Job(lambda rank, _: compute(2 if rank == 0 else 1), 64)
    first = found.finder.notes[0]
    assert [len(role.ranks) for role in found.roles] == [1, 63]
    assert "rank 0 alone differs from the others" in first and "record" in first


def test_ranges_of_ranks_that_do_the_same_are_found_by_halving():
    """As with FSDP's parts of parameters that have 16 and 48 rows, on 64 ranks."""

    def script(rank, _):
        for rows in (16, 48):
            torch.ones(int(rank < rows) + 1, SIZE, device="trn").relu()

    found = Job(script, 64)
    ranks = [sorted(role.ranks) for role in found.roles]
    assert ranks == [list(range(16)), list(range(16, 48)), list(range(48, 64))]
    assert len(found.whole) < 20
    assert any("ranks 0..15, 16..47, 48..63 do different work" in n for n in found.finder.notes)


def test_a_range_in_the_middle_alone_is_not_told_and_refused():
    with pytest.raises(CaptureError, match="ranks do different things"):
        Job(lambda rank, _: compute(1 + (4 <= rank < 60)), 64)


def test_odd_ranks_that_do_something_else_are_named():
    with pytest.raises(CaptureError) as raised:
        Job(lambda rank, _: compute(1 + rank % 2), 64)
    text = str(raised.value)
    assert text.startswith("ranks do different things") and "does not do as rank 0" in text
    assert "aten::mm" in text and "--check-ranks 0" in text and "\n" not in text


def test_ranks_with_other_shapes_are_named():
    def script(rank, _):
        torch.ones(SIZE + rank % 3, SIZE, device="trn").relu()

    with pytest.raises(CaptureError, match=r"ranks do different things.*float32\[257,256\]"):
        Job(script, 16)


def test_messages_with_more_ranks_than_may_be_captured_are_refused():
    with pytest.raises(CaptureError, match="more than 3 ranks.*--max-roles"):
        Job(chain, 8, max_roles=3)


def test_ranks_that_a_pipeline_does_not_divide_are_named():
    def script(rank, ranks):
        if rank < ranks - ranks % 4:
            chain(rank % 4, 4) if rank < 4 else compute()

    with pytest.raises(CaptureError, match="rank 8 is in none"):
        Job(script, 10, checked=0)


def test_ranks_that_ran_another_number_of_steps_are_named():
    class Uneven(Job):
        def run(self, rank):
            with job(self.ranks, "phantom", rank) as captured:
                for _ in range(2 if rank == 0 else 1):
                    all_reduce(rank, self.ranks)
                    torch.trn.step()
            return captured.workload

    with pytest.raises(CaptureError, match="rank 3 ran 1 whole steps, and step 1"):
        Uneven(all_reduce, 4)


def test_objects_of_another_rank_are_refused():
    with job(2, "phantom", 1), pytest.raises(CaptureError, match="recv_object_list: the objects"):
        dist.recv_object_list([None], src=0)
