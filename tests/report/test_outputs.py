# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The files of a run: Perfetto's own schema reads the trace, parquet the tasks, and a file that
cannot be finished is not there."""

import json
from collections import defaultdict

import command
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
from pyarrow import parquet

from trnsim import _core
from trnsim.errors import ReportError
from trnsim.report import to_json, write_outputs
from trnsim.workload import load_run


@pytest.fixture(scope="module")
def written(four_chips, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out")
    write_outputs(four_chips, folder, trace_ranks=[0, 3])
    return folder


@pytest.fixture(scope="module")
def trace(written):
    parsed = Trace()
    parsed.ParseFromString((written / "trace.pftrace").read_bytes())
    return parsed


def test_every_field_is_one_that_perfetto_knows(trace, written):
    # An unknown field would be kept aside by the parser: writing again what was understood gives
    # the same length only when everything was.
    for packet in trace.packet:
        packet.DiscardUnknownFields()
    assert trace.ByteSize() == (written / "trace.pftrace").stat().st_size


def tracks_of(trace):
    return {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet
            if p.HasField("track_descriptor")}  # fmt: skip


def test_a_process_is_a_rank_and_a_thread_an_engine(trace):
    tracks = tracks_of(trace)
    processes = [t.process.process_name for t in tracks.values() if t.HasField("process")]
    assert processes[:2] == ["rank 0 on chip 0", "rank 3 on chip 3"]
    threads = {t.thread.thread_name for t in tracks.values() if t.HasField("thread")}
    assert {"host", "tensor engine", "DMA queue"} <= threads
    assert any(name.startswith("collective stream") for name in threads)


def test_slices_are_the_tasks_of_the_timeline(trace, four_chips):
    names, slices, open_slices = {}, defaultdict(list), defaultdict(list)
    tracks = tracks_of(trace)
    for packet in trace.packet:
        for entry in packet.interned_data.event_names:
            names[entry.iid] = entry.name
        event = packet.track_event
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            open_slices[event.track_uuid].append((packet.timestamp, names[event.name_iid]))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            begin, name = open_slices[event.track_uuid].pop()
            slices[tracks[event.track_uuid].thread.pid].append((begin, packet.timestamp, name))
    assert not any(open_slices.values())
    columns = four_chips.run.task_columns([0])
    expected = sorted(
        (int(start) // 1000, int(end) // 1000, columns["names"][name])
        for start, end, name in zip(
            columns["start_ps"], columns["end_ps"], columns["name"], strict=True
        )
        if end > start
    )
    assert sorted(slices[1]) == expected
    assert max(end for _, end, _ in slices[1]) <= four_chips.figures.step_ps // 1000


def test_links_and_memory_are_counters(trace, four_chips):
    tracks = tracks_of(trace)
    values = defaultdict(list)
    for packet in trace.packet:
        event = packet.track_event
        if event.type == TrackEvent.TYPE_COUNTER:
            values[tracks[event.track_uuid].name].append(event.double_counter_value)
    links = {name: load for name, load in values.items() if name.startswith("link ")}
    assert links
    for name, load in links.items():
        assert max(load) > 0, name
        assert max(load) <= 100.0001, name
        assert load[-1] == 0, name
    assert 0 < max(values["memory"]) <= four_chips.figures.memory_peak_bytes


def test_the_estimate_of_the_size_is_within_a_factor_of_two(four_chips, written):
    size = (written / "trace.pftrace").stat().st_size
    estimate = _core.estimate_trace_bytes(four_chips.run, [0, 3])
    assert estimate / 2 <= size <= estimate * 2


def test_the_other_files_hold_the_same_run(four_chips, written):
    assert json.loads((written / "projection.json").read_text()) == json.loads(
        json.dumps(to_json(four_chips))
    )
    table = parquet.read_table(written / "timeline.parquet")
    assert table.column_names == ["rank", "queue", "kind", "name", "module", "start_ps", "end_ps"]
    assert max(table["end_ps"].to_pylist()) == four_chips.figures.step_ps
    assert {p.name for p in written.iterdir()} == {
        "projection.json", "timeline.parquet", "trace.pftrace", "torch_profiler",
    }  # fmt: skip


@pytest.fixture(scope="module")
def profiles(written):
    found = sorted((written / "torch_profiler").iterdir())
    assert [path.name for path in found] == ["rank0_trace.json", "rank3_trace.json"]
    return [json.loads(path.read_text()) for path in found]


def test_a_profile_has_what_tools_for_torch_profiler_ask_for(profiles, written):
    for rank, profile in zip((0, 3), profiles, strict=True):
        about = profile["distributedInfo"]
        assert (about["rank"], about["world_size"], about["pg_count"]) == (rank, 4, 1)
        assert about["pg_config"][0]["ranks"] == [0, 1, 2, 3]
        # HolisticTraceAnalysis finds the rank by reading lines, with a space after the colon
        lines = (written / "torch_profiler" / f"rank{rank}_trace.json").read_text().splitlines()
        assert any(f'"rank": {rank},' in line for line in lines[:10])
        for event in profile["traceEvents"]:
            assert {"ph", "name", "pid", "tid", "ts", "args"} <= event.keys()
            assert event["ph"] in "XMi" and isinstance(event["args"], dict)
            if event["ph"] == "X":
                assert event["dur"] > 0 and {"cat", "dur"} <= event.keys()
            if event.get("cat") in ("kernel", "gpu_memcpy"):
                assert {"External id", "correlation", "device", "stream"} <= event["args"].keys()
                assert event["tid"] == event["args"]["stream"]
    categories = {event.get("cat") for event in profiles[0]["traceEvents"]}
    assert {"kernel", "gpu_memcpy", "cpu_op", "cuda_runtime", "user_annotation"} <= categories


def test_a_profile_s_device_events_are_the_tasks_of_the_timeline(profiles, four_chips):
    columns = four_chips.run.task_columns([0])
    expected = sorted(
        (int(start) // 1000, int(end) // 1000)
        for start, end, queue in zip(
            columns["start_ps"], columns["end_ps"], columns["queue"], strict=True
        )
        if end // 1000 > start // 1000 and columns["queues"][queue] != "host"
    )
    in_ns = lambda event, key: round(event[key] * 1000)
    events = [
        event for event in profiles[0]["traceEvents"]
        if event.get("cat") in ("kernel", "gpu_memcpy")
    ]  # fmt: skip
    spans = [(in_ns(e, "ts"), in_ns(e, "ts") + in_ns(e, "dur")) for e in events]
    assert sorted(spans) == expected
    launches = {
        event["args"]["correlation"]: in_ns(event, "ts")
        for event in profiles[0]["traceEvents"] if event.get("cat") == "cuda_runtime"
        and "correlation" in event["args"]
    }  # fmt: skip
    assert all(launches[e["args"]["correlation"]] < in_ns(e, "ts") for e in events)
    reduced = [e for e in events if e["name"].startswith("ncclDevKernel_AllReduce")]
    assert [e["args"]["In msg nelems"] for e in reduced] == [512 * 512] * 2
    assert {e["args"]["Collective name"] for e in reduced} == {"allreduce"}


def test_memory_of_a_profile_adds_up(profiles):
    steps = [e["args"] for e in profiles[0]["traceEvents"] if e["name"] == "[memory]"]
    total = 0
    for step in steps:
        total += step["Bytes"]
        assert total == step["Total Allocated"]
    assert steps and not [e for e in profiles[1]["traceEvents"] if e["name"] == "[memory]"]


def test_write_leaves_a_run_file_that_projects_to_the_same(four_chips, tmp_path):
    import trnsim

    folder = four_chips.write(tmp_path / "new" / "folder", name="small")
    saved = load_run(folder / "small.trnsim")
    assert saved.workload.hash == four_chips.figures.workload_hash
    again = trnsim.project(folder / "small.trnsim", "trn2", advise=False, interval=False)
    assert again.figures.timeline_hash == four_chips.figures.timeline_hash


def test_a_machine_changed_in_python_is_recorded_with_its_changes(tmp_path):
    import small_workload

    import trnsim

    workload, trn2 = small_workload.train(), trnsim.machine.load("trn2")
    slower = trn2.with_override("chip.hbm.bandwidth=1TB/s")
    quick = {"advise": False, "interval": False}
    first = trnsim.project(workload, slower, **quick)
    manifest = load_run(first.write(tmp_path) / "run.trnsim").manifest
    assert manifest["machine"] == "trn2" and manifest["machine_hash"] == slower.hash
    assert trnsim.machine.load("trn2", manifest["options"]["overrides"]) == slower
    # what no assignment says is known by the hash alone
    twice = trnsim.project(workload, trn2.scaled("hbm", "2"), **quick)
    twice.write(tmp_path, name="twice")
    done = command.trnsim("project", tmp_path / "twice.trnsim")
    assert done.returncode == 2 and "its figures changed" in done.stderr


def test_a_trace_that_cannot_be_written_leaves_nothing(four_chips, tmp_path):
    with pytest.raises(ReportError, match="cannot write"):
        _core.write_trace(four_chips.run, [0], str(tmp_path / "missing" / "trace.pftrace"))
    (tmp_path / "trace.pftrace").mkdir()
    with pytest.raises(ReportError, match="cannot write"):
        _core.write_trace(four_chips.run, [0], str(tmp_path / "trace.pftrace"))
    assert [p.name for p in tmp_path.iterdir()] == ["trace.pftrace"]


def test_a_rank_that_is_not_there_is_refused(four_chips, tmp_path):
    with pytest.raises(ReportError, match="rank 4 is not of this run"):
        write_outputs(four_chips, tmp_path, trace_ranks=[4])
    assert list(tmp_path.iterdir()) == []
