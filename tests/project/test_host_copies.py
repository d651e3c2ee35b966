# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Copies between host and device in scripts: bytes over bandwidth, streams, and memory."""

import math

import pytest
import torch

import trnsim
from trnsim import _core

MIB = 1 << 20
RATES = {"h100": 55e9, "trn2": 31e9}  # server.host_link_bandwidth
LAUNCH_PS = 5_000_000  # of h100


@pytest.fixture(autouse=True)
def phantom():
    """Shapes only, whatever ran before."""
    import gc

    from trnsim import _torch

    gc.collect()
    _torch.set_mode("phantom")


def simulated(script, machine, **options):
    """The projection of what `script` does on the device."""
    with trnsim.simulate(machine, mode="phantom", **options) as sim:
        script(torch.device("trn"))
    projection = trnsim.project(sim.workload, machine, advise=False, interval=False)
    return projection, sim.workload


def step_ps(script, machine):
    return simulated(script, machine)[0].figures.step_ps


def copy_ps(count, machine):
    return math.ceil(count * 10**12 / RATES[machine])


def kinds(workload):
    names = _core.workload_enum_names()["records.kind"]
    return [names[kind] for kind in workload.to_columns()["records"]["kind"]]


def tasks(projection):
    """(name of the op, queue, start, end) of every task of an op."""
    program = projection.program
    rows = zip(
        program.tasks["op"].tolist(), program.tasks["queue"],
        projection.timeline.rank_starts_ps(0).tolist(),
        projection.timeline.rank_ends_ps(0).tolist(),
        strict=True,
    )  # fmt: skip
    return [(program.ops[op]["name"], queue, a, b) for op, queue, a, b in rows if op >= 0]


def compute(x, times=300):
    for _ in range(times):
        x = torch.relu(x)
    return x


def pinned_like(x):
    return torch.empty(x.shape, dtype=x.dtype, pin_memory=True)


# --- how long, and what waits ---------------------------------------------------------------------


@pytest.mark.parametrize("machine", RATES)
@pytest.mark.parametrize("way", ["cpu", "to", "pinned", "back"])
def test_a_copy_takes_its_bytes_over_the_link(machine, way):
    def script(device):
        x = torch.ones(64 * MIB, dtype=torch.uint8, device=device)
        if way == "cpu":
            x.cpu()
        elif way == "to":
            x.to("cpu", non_blocking=True)
        elif way == "pinned":
            pinned_like(x).copy_(x, non_blocking=True)
        else:
            x.copy_(pinned_like(x), non_blocking=True)

    done, _ = simulated(script, machine)
    ((_, queue, start, end),) = [row for row in tasks(done) if "copy_" in row[0]]
    assert end - start == copy_ps(64 * MIB, machine)
    assert done.program.queues[queue][0] == "host_link"


def test_the_host_waits_for_a_copy_unless_it_is_pinned_and_need_not():
    def script(to_host):
        return lambda device: to_host(torch.relu(torch.ones(MIB, device=device)))

    waits = {
        "cpu": lambda x: x.cpu(),
        "pageable": lambda x: torch.empty(x.shape).copy_(x, non_blocking=True),
        "to, not blocking": lambda x: x.to("cpu", non_blocking=True),  # torch pins what it makes
        "pinned": lambda x: pinned_like(x).copy_(x),
        "pinned, not blocking": lambda x: pinned_like(x).copy_(x, non_blocking=True),
    }
    reads = {
        name: kinds(simulated(script(to_host), "h100")[1]).count("host_read")
        for name, to_host in waits.items()
    }
    assert reads == {
        "cpu": 1, "pageable": 1, "to, not blocking": 0, "pinned": 1, "pinned, not blocking": 0,
    }  # fmt: skip


def side_copy(is_beside, count=64 * MIB):
    """Compute with a copy out of what came before it, on the same stream or beside it."""

    def script(device):
        x = torch.relu(torch.ones(count // 4, device=device))
        side = torch.trn.Stream() if is_beside else torch.trn.current_stream()
        side.wait_stream(torch.trn.current_stream())
        with torch.trn.stream(side):
            pinned_like(x).copy_(x, non_blocking=True)
        y = compute(x)
        torch.trn.current_stream().wait_stream(side)
        torch.relu(y)

    return script


@pytest.mark.parametrize("machine", RATES)
@pytest.mark.parametrize("count", [64 * MIB, 512 * MIB])
def test_a_copy_on_its_own_stream_hides_under_compute(machine, count):
    def without(device):
        torch.relu(compute(torch.relu(torch.ones(count // 4, device=device))))

    alone, copied = step_ps(without, machine), copy_ps(count, machine)
    in_turn, beside = (
        step_ps(side_copy(False, count), machine),
        step_ps(side_copy(True, count), machine),
    )
    assert in_turn == pytest.approx(alone + copied, rel=0.01)
    ends = 0.02 * alone  # the op before the copy and those behind it are not beside it
    assert max(alone, copied) <= beside <= max(alone, copied) + ends + LAUNCH_PS


# --- memory ---------------------------------------------------------------------------------------


class Net(torch.nn.Module):
    """Eight layers that each keep their input of 16 MiB and their square's."""

    def __init__(self, device):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4 * MIB, device=device))

    def forward(self, x):
        for _ in range(8):
            x = (x * self.scale).exp()
        return x.sum()


def saving(context):
    def script(device):
        net = Net(device)
        with context():
            loss = net(torch.ones(4 * MIB, device=device))
        loss.backward()

    return script


def counted(workload):
    """Bytes of copies to the host and back."""
    found = {"trnsim::copy_d2h": 0, "trnsim::copy_h2d": 0}
    for line in workload.print_records(0, len(workload)):
        for name in found:
            if name + "(" in line:
                found[name] += 16 * MIB if "[4194304]" in line else 4
    return tuple(found.values())


@pytest.mark.parametrize("machine", RATES)
def test_save_on_cpu_frees_what_it_copied(machine):
    import contextlib

    from torch.autograd.graph import save_on_cpu

    kept, _ = simulated(saving(contextlib.nullcontext), machine)
    away, workload = simulated(
        saving(lambda: save_on_cpu(pin_memory=True, device_type="trn")), machine
    )
    out, back = counted(workload)
    # mul keeps x and the scale, exp its result, which is the next mul's x.
    assert out == back > 0
    # The peak with all kept: scale, gradient and 9 activations and more; away: a few of one layer.
    assert kept.figures.memory_peak_bytes - away.figures.memory_peak_bytes >= 5 * 16 * MIB
    assert "host_read" not in kinds(workload)


def recorded(copies, ops, waits):
    """A tensor is freed at once after copies on another stream began, then others are made."""

    def script(device):
        side = torch.trn.Stream()
        x = torch.relu(torch.ones(16 * MIB, device=device))  # two of 64 MiB, of which one stays
        side.wait_stream(torch.trn.current_stream())
        with torch.trn.stream(side):
            host = pinned_like(x)
            for _ in range(copies):
                host.copy_(x, non_blocking=True)
        x.record_stream(side)
        del x
        if waits:
            side.synchronize()
        y = compute(torch.ones(MIB, device=device), ops)
        big = torch.relu(torch.ones(16 * MIB, device=device))
        del y, big

    return script


@pytest.mark.parametrize("machine", RATES)
def test_record_stream_keeps_memory_until_the_copy_ends(machine):
    def peak(*case):
        return simulated(recorded(*case), machine)[0].figures.memory_peak_bytes

    waited = peak(20, 3, True)  # two of 64 MiB at once
    assert 2 * 64 * MIB <= waited < 3 * 64 * MIB
    assert peak(20, 3, False) - waited == 64 * MIB  # and a third, which copies of 24 ms still read
    assert peak(1, 2400, False) == waited  # one that is over, for 2400 ops take longer


def test_what_goes_to_pinned_memory_takes_none_of_this_computers():
    """8 GiB of activations on a laptop."""
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def script(device):
        hosts = []
        for _ in range(8):
            x = torch.ones(256 * MIB, device=device)
            hosts.append(pinned_like(x))
            hosts[-1].copy_(x, non_blocking=True)
        assert torch.count_nonzero(hosts[0][:4]) == 0
        for host in hosts:
            host.to(device, non_blocking=True)

    simulated(script, "h100")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 * 1024
