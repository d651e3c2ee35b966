# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Run files: what is written is read back, and what is no run file is refused in one line."""

import json
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trnsim.errors import WorkloadError
from trnsim.workload import Workload, is_run_file, load, load_run, save, save_run

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
GROUPS = ["0..63", "0,8,17", "5", "start 0 axes 1x2 64x3"]
SIGNATURES = [
    "aten::mm(self: bfloat16[4,8], mat2: bfloat16[8,2]{1,8}+16) -> (out0: bfloat16[4,2])",
    'aten::x(self!: float32[], mode="a \\" b", p=0.10000000149011612f, dims=[1,-2]) -> ()',
    "aten::cat(tensors#0: int64[0], tensors#1: int64[3], dim=0) -> (out0: int64[3])",
]


def ints(values, dtype=np.int64):
    return np.array(values, dtype=dtype)


def drawn_calls(draw, calls, groups):
    """The table of `calls` collectives in some of `groups` groups."""
    many = lambda low, top: ints([draw(st.integers(low, top)) for _ in range(calls)])
    splits, received = (
        [draw(st.lists(st.integers(0, 2**40), max_size=3)) for _ in range(calls)] for _ in range(2)
    )
    listed = {"splits": splits} | ({"received": received} if any(received) else {})
    kinds = many(0, 10)
    return {
        "kind": kinds,
        "batch": ints([draw(st.integers(-1, 2)) if kind in (8, 9) else -1 for kind in kinds]),
        "group": many(0, groups - 1),
        "bytes": many(0, 2**50),
        "peer": many(-1, 5),
        "tag": many(0, 5),
        "async": many(0, 1).astype(bool),
        "dtype": many(0, 18),
        **{f"{name}_offsets": ints(np.cumsum([0] + [len(s) for s in parts]))
           for name, parts in listed.items()},
        **{f"{name}_values": ints([b for s in parts for b in s])
           for name, parts in listed.items()},
    }  # fmt: skip


def drawn_records(draw, signatures, modules, calls, storages):
    """The tables of records and uses; each table's size is given."""
    number = lambda low, top: draw(st.integers(low, top))
    rows, uses = [], []
    for _ in range(number(0, 10)):
        kind = draw(st.sampled_from([0, 3, 4, 5, 6] + ([1, 2] if calls else [])))
        named = {1: calls - 1, 2: 0, 6: number(0, 4)}
        used = 2 + number(0, 2)  # at least as many as any signature has inputs
        row = [number(0, signatures - 1) if kind == 0 else -1, number(0, modules - 1)]
        row += [number(-1, 2**62), len(uses), used, number(0, 3), -1]
        row += [named.get(kind, number(-1, 9)), number(-1, 2**62), kind]
        rows.append([*row, number(0, 4), number(0, 1), number(0, 1)])
        uses += [(number(0, storages - 1), number(0, 9)) for _ in range(used)]
    names = list(small().to_columns()["records"])
    records = {name: ints([row[i] for row in rows]) for i, name in enumerate(names)}
    return records, {"storage": ints([u[0] for u in uses]), "version": ints([u[1] for u in uses])}


@st.composite
def tables(draw):
    """A Workload's tables that fit each other, small and otherwise arbitrary."""
    number = lambda low, top: draw(st.integers(low, top))
    storages, calls = number(1, 7), number(0, 3)
    many = lambda low, top: ints([number(low, top) for _ in range(storages)])
    signatures = draw(st.lists(st.sampled_from(SIGNATURES), min_size=1, max_size=7))
    modules = ["", *draw(st.lists(NAMES, max_size=3))]
    groups = draw(st.lists(st.sampled_from(GROUPS), min_size=1, max_size=3))
    records, uses = drawn_records(draw, len(signatures), len(modules), calls, storages)
    count = len(records["kind"])
    return {
        "records": records,
        "uses": uses,
        "calls": drawn_calls(draw, calls, len(groups)),
        "storages": {
            "bytes": many(0, 2**45),
            "born": many(0, count),
            "died": many(-1, count),
            "kind": many(0, 7),
        },
        "allocations": {
            "record": ints([0] * storages),
            "storage": ints(range(storages)),
            "stream": many(0, 2),
            "is_free": ints([0] * storages, bool),
        },
        "signatures": {"text": signatures},
        "modules": {"path": modules},
        "regions": {"description": []},
        "groups": {"name": [draw(NAMES) for _ in groups], "ranks": groups},
        "facts": {
            "role": "rank0",
            "rank": 1,
            "world_size": number(130, 200),
            "ranks_per_server": 1,
            "mode": draw(st.sampled_from(["phantom", "compute"])),
            "seed": number(0, 2**64 - 1),
            "unknown_reads": number(0, 5),
            "parameter_count": number(0, 2**60),
            "notes": draw(st.lists(NAMES)),
            "ranks": draw(st.sampled_from(["", "0..1", "1", "start 1 axes 2x4"])),
        },
    }


def small(**facts) -> Workload:
    """Two records: an op, and the marker of an optimizer."""
    none = {
        "kind": [],
        "group": [],
        "bytes": [],
        "peer": [],
        "tag": [],
        "async": [],
        "dtype": [],
        "splits_values": [],
    }
    both = [0, 1]
    return Workload.from_columns(
        {
            "records": {
                "signature": ints([0, -1]),
                "module": ints([0, 0]),
                "sequence_nr": ints(both),
                "uses_begin": ints([0, 2]),
                "uses_count": ints([2, 0]),
                "stream": ints([0, 0]),
                "region": ints([-1, -1]),
                "payload": ints([-1, 1]),
                "value": ints([-1, 7]),
                "kind": ints([0, 6]),
                "phase": ints([0, 3]),
                "no_grad": ints([0, 0]),
                "fallback_read": ints([0, 0]),
            },
            "uses": {"storage": ints(both), "version": ints(both)},
            "calls": {name: ints(v) for name, v in none.items()} | {"splits_offsets": ints([0])},
            "storages": {
                "bytes": ints([1024, 1024]),
                "born": ints([0, 0]),
                "died": ints([-1, -1]),
                "kind": ints([0, 7]),
            },
            "allocations": {
                "record": ints([0, 0]),
                "storage": ints(both),
                "stream": ints([0, 0]),
                "is_free": ints([0, 0]),
            },
            "signatures": {"text": ["aten::relu(self: float32[256]) -> (out0: float32[256])"]},
            "modules": {"path": [""]},
            "regions": {"description": []},
            "groups": {"name": [""], "ranks": ["0"]},
            "facts": {
                "role": "rank0",
                "rank": 0,
                "world_size": 1,
                "ranks_per_server": 1,
                "mode": "phantom",
                "seed": 3,
                "unknown_reads": 0,
                "parameter_count": 256,
                "notes": ["guessed"],
            }
            | facts,
        }
    )


def same(a, b) -> bool:
    """Equality of tables, whatever integer types their columns have."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return list(a) == list(b) if isinstance(a, (list, np.ndarray)) else a == b


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(tables())
def test_a_workload_comes_back_from_columns_and_from_a_file(tmp_path, columns):
    workload = Workload.from_columns(columns)
    assert same(columns, workload.to_columns())
    save(workload, tmp_path / "run.trnsim")
    read = load(tmp_path / "run.trnsim")
    assert same(columns, read.to_columns())
    assert read.compare(workload) == [] and read.hash == workload.hash


def test_the_same_workload_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        save(small(), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_run_file_is_known_by_its_content(tmp_path):
    save(small(), tmp_path / "run.pdf")
    (tmp_path / "fake.trnsim").write_text("not a zip")
    with zipfile.ZipFile(tmp_path / "other.trnsim", "w") as archive:
        archive.writestr("manifest.json", json.dumps({"format": "other"}))
    assert is_run_file(tmp_path / "run.pdf")
    assert not is_run_file(tmp_path / "fake.trnsim")
    assert not is_run_file(tmp_path / "other.trnsim")
    for name in ("fake.trnsim", "other.trnsim"):
        with pytest.raises(WorkloadError, match="is not a run file"):
            load(tmp_path / name)
    with pytest.raises(WorkloadError, match="no file"):
        load(tmp_path / "absent.trnsim")


def rewritten(path, change):
    """The run file with its members as `change` leaves them."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_a_newer_major_is_refused_and_a_newer_minor_is_read(tmp_path):
    def version(*numbers):
        def change(members):
            manifest = json.loads(members["manifest.json"]) | {"version": numbers}
            members["manifest.json"] = json.dumps(manifest)

        return change

    save(small(), tmp_path / "run")
    assert load(rewritten(tmp_path / "run", version(1, 9))).seed == 3
    with pytest.raises(WorkloadError, match="upgrade trnsim"):
        load(rewritten(tmp_path / "run", version(2, 0)))


def test_a_damaged_file_is_one_line(tmp_path):
    save(small(), tmp_path / "run")
    rewritten(tmp_path / "run", lambda members: members.pop("roles/rank0/uses.parquet"))
    with pytest.raises(WorkloadError, match="is damaged") as raised:
        load(tmp_path / "run")
    assert "\n" not in str(raised.value)


def test_nothing_is_left_of_a_write_that_fails(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(WorkloadError, match="cannot write"):
        save(small(), tmp_path / "taken")
    with pytest.raises(WorkloadError, match="cannot write"):
        save(small(), tmp_path / "absent" / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_the_manifest_says_how_the_run_was_made(tmp_path):
    save_run(
        tmp_path / "run",
        [small(), small(role="rank1")],
        command=["train.py"],
        machine="trn2",
        machine_hash="00",
        options={"chips": 4},
    )
    run = load_run(tmp_path / "run")
    assert [workload.role for workload in run.workloads] == ["rank0", "rank1"]
    assert run.manifest["command"] == ["train.py"] and run.manifest["options"] == {"chips": 4}
    assert run.manifest["seed"] == 3 and run.workload.notes == ["guessed"]


def test_differences_name_the_record_and_show_both_sides():
    a = small()
    columns = small().to_columns()
    columns["records"]["phase"] = ints([2, 3])
    b = Workload.from_columns(columns)
    assert a.compare(small()) == []
    difference = (
        "record 0 differs in phase: a: #0 forward aten::relu(self: float32[256]) -> (out0: "
        "float32[256]) reads s0v0 writes s1v1 seq 0 | b: #0 backward aten::relu(self: "
        "float32[256]) -> (out0: float32[256]) reads s0v0 writes s1v1 seq 0"
    )
    assert a.compare(b) == [difference]
    assert a.hash != b.hash


def of_one_exchange(splits: list[int], received: list[int]) -> Workload:
    """An all-to-all of 256 bytes among ranks 1 and 3."""
    columns = small().to_columns()
    of_call = {"kind": 7, "group": 0, "bytes": 256, "peer": -1, "tag": 0, "async": 0, "dtype": 8}
    columns["calls"] = {name: ints([value]) for name, value in of_call.items()}
    for name, parts in (("splits", splits), ("received", received)):
        columns["calls"] |= {
            f"{name}_offsets": ints([0, len(parts)]),
            f"{name}_values": ints(parts),
        }
    columns["calls"]["batch"] = ints([-1])
    columns["records"]["kind"] = ints([0, 1])
    columns["records"]["payload"] = ints([-1, 0])
    return Workload.from_columns(columns)


def test_what_is_received_is_compared_kept_and_shown(tmp_path):
    both = [of_one_exchange([], [64, 192]), of_one_exchange([], [192, 64])]
    assert both[0].hash != both[1].hash != of_one_exchange([], []).hash
    assert both[0].hash != of_one_exchange([64, 192], []).hash
    (line,) = both[0].compare(both[1])
    assert line.startswith("record 1 differs in call") and "received 64 192" in line
    path = tmp_path / "run.trnsim"
    save(both[0], path)
    assert load(path).compare(both[0]) == []
    assert "received_offsets" not in of_one_exchange([64, 192], []).to_columns()["calls"]


def test_tables_that_do_not_fit_are_refused():
    for table, column, values in [
        ("records", "kind", [0, 9]),
        ("uses", "storage", [0, 7]),
        ("records", "module", [0]),
        ("storages", "kind", [0, 8]),
    ]:
        columns = small().to_columns()
        columns[table][column] = ints(values)
        with pytest.raises(WorkloadError):
            Workload.from_columns(columns)
    columns = small().to_columns()
    del columns["records"]["phase"]
    with pytest.raises(WorkloadError, match="no column 'phase'"):
        Workload.from_columns(columns)


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ("0,1,1", "group 'pair' names rank 1 twice"),
        ("0,1,4", "group 'pair' names rank 4 of 4"),
        ("start 0 axes 1x2 1x2", "group 'pair' names rank 1 twice"),
    ],
)
def test_a_group_has_each_of_its_ranks_once(ranks, said):
    columns = small(world_size=4).to_columns()
    columns["groups"] = {"name": ["pair"], "ranks": [ranks]}
    with pytest.raises(WorkloadError, match=f"^{said}") as raised:
        Workload.from_columns(columns)
    assert "\n" not in str(raised.value)


def test_steps_and_memory_are_those_of_the_arithmetic():
    workload = small()
    step = workload.choose_step()
    assert (step.begin, step.end, step.whole, step.creates_state) == (0, 2, True, True)
    peak = workload.replay_allocations()
    assert peak.allocated_bytes == 2048 and peak.reserved_bytes == 2 << 20
    assert peak.by_kind["parameter"] == 1024 and peak.by_kind["temporary"] == 1024
    assert workload.outside_step(step).tolist() == [0, 0]


def test_a_role_says_who_plays_it_and_belongs_to_them():
    workload = small()
    assert workload.played_by is None
    workload.played_by = "start 0 axes 4x2"
    assert Workload.from_columns(workload.to_columns()).played_by == "start 0 axes 4x2"
    assert workload.compare(small())[0] == (
        "ranks of the role: a has 'start 0 axes 4x2', b has 'all ranks'"
    )
    with pytest.raises(WorkloadError, match="rank 0 is not of the ranks of its own role"):
        small(ranks="1..3")


def test_only_messages_have_batches():
    columns = small().to_columns()
    one = {"kind": 0, "group": 0, "bytes": 4, "peer": -1, "tag": 0, "async": 0, "dtype": 8}
    columns["calls"] = {name: ints([value]) for name, value in one.items()} | {
        "batch": ints([0]), "splits_offsets": ints([0, 0]), "splits_values": ints([]),
    }  # fmt: skip
    with pytest.raises(WorkloadError, match="call 0 is of a batch, and no message"):
        Workload.from_columns(columns)
