# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A captured step of a small transformer on every preset: one chip, one server, and two servers or
pods."""

import functools

import pytest
from jobs import job
from parallel import build, train

import trnsim
from trnsim import machine as machines
from trnsim.errors import MachineError


@functools.cache
def captured(ranks: int):
    with job(ranks, "phantom") as run:
        model = build("plain" if ranks == 1 else "fsdp2", ranks)
        train(model, steps=2)
    return run.workload


def project(name: str, ranks: int):
    return trnsim.project(captured(ranks), name, advise=False, interval=False).figures


def server_of(machine) -> int:
    return max(n for n in machine.legal_chip_counts if n <= machine.server_chips)


def two_of(machine) -> int:
    """Two servers, or two pods where a pod is hardly more than that."""
    return next(n for n in machine.legal_chip_counts if n > machine.server_chips)


@pytest.mark.parametrize("name", machines.presets())
def test_a_transformer_projects_on_one_chip(name):
    p = project(name, 1)
    assert p.step_ps > 0
    assert p.breakdown.exposed_communication_ps == 0
    assert 0 < p.mfu < 1


@pytest.mark.parametrize("name", machines.presets())
def test_a_transformer_projects_on_a_server(name):
    chips = server_of(machines.load(name))
    p = project(name, chips)
    assert (p.chips_used, p.ranks) == (chips, chips)
    assert p.breakdown.exposed_communication_ps > 0
    assert 0 < p.mfu < 1


@pytest.mark.parametrize("name", [n for n in machines.presets() if n not in ("inf2", "trn2")])
def test_a_transformer_projects_on_more_than_a_server(name):
    machine = machines.load(name)
    chips = two_of(machine)
    p = project(name, chips)
    assert p.chips_used == chips
    assert p.breakdown.exposed_communication_ps > 0


@pytest.mark.parametrize("name", ["gb200-nvl72", "tpu-v5e", "trn3"])
def test_a_transformer_projects_on_two_pods(name):
    machine = machines.load(name)
    chips = next(n for n in machine.legal_chip_counts if n > machine.pod_chips)
    p = project(name, chips)
    assert p.chips_used == chips
    partial = [value for what, value, _ in p.guesses if what == "chips of each pod"]
    assert partial == (["64 of 72 are used"] if name == "gb200-nvl72" else [])


@pytest.mark.parametrize("name", ["inf2", "trn2"])
def test_what_has_no_network_between_servers_says_so(name):
    with pytest.raises(MachineError, match="its file names no network between them"):
        machines.placement(machines.load(name), chips=64)


def test_sixteen_thousand_gpus_fold_to_the_figures_of_a_server_s_kind():
    p = project("h100", 16384)
    assert p.ranks == 16384
    assert p.step_ps > project("h100", 1024).step_ps


def test_a_tpu_fuses_and_says_so():
    tpu = project("tpu-v5e", 1)
    assert ("fusion", "greedy inside a phase") in {(what, value) for what, value, _ in tpu.guesses}
    assert tpu.memory_is_upper_bound
