# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`with trnsim.simulate(...)`: the block is recorded, projected and written."""

import command


def python(text):
    """Runs the lines, which end well."""
    done = command.python(text)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_block_is_projected_and_written(tmp_path):
    python(f"""
        import torch, trnsim
        model = torch.nn.Linear(64, 64, device="trn")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        def step():
            model(torch.ones(8, 64, device="trn")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        step()                                   # outside: not recorded
        with trnsim.simulate("trn2", chips=4) as sim:
            step()
            step()
        steps = [s for s in sim.workload.find_steps() if s.whole]
        assert len(steps) == 2, steps
        assert sim.projection.step_time_s > 0
        assert sim.projection.figures.chips == 4 and sim.projection.figures.chips_used == 1
        assert sim.timeline.hash == sim.projection.figures.timeline_hash
        sim.write({str(tmp_path)!r}, name="block")
        again = trnsim.project(trnsim.load({str(tmp_path / "block.trnsim")!r}), "trn2", chips=4)
        assert again.figures.timeline_hash == sim.projection.figures.timeline_hash
    """)
    assert (tmp_path / "trace.pftrace").is_file()


def test_each_rank_is_simulated_where_folding_is_off():
    python("""
        import torch, torch.distributed as dist, trnsim
        found = []
        for fold in (True, False):
            with trnsim.simulate("trn2-ultra", chips=64, fold=fold) as sim:
                dist.init_process_group()
                dist.all_reduce(torch.ones(1 << 20, device="trn"))
                dist.destroy_process_group()
            assert sim.projection.figures.ranks == 64
            assert len(sim.timeline.system.ranks) == (1 if fold else 64)
            found.append(sim.projection.to_dict())
        assert found[0] == found[1]
    """)


def test_simulate_is_a_verb_and_a_room_in_any_order_of_imports():
    for first in (
        "import trnsim.simulate",
        "trnsim.simulate('trn2')",
        "from trnsim import simulate",
    ):
        python(f"""
            import trnsim
            {first}
            import inspect
            import trnsim.simulate
            from trnsim.simulate import Simulation
            assert isinstance(trnsim.simulate("trn2", chips=4), Simulation)
            assert "chips" in inspect.signature(trnsim.simulate).parameters
        """)


def test_an_exception_passes_and_the_next_block_works():
    python("""
        import torch, trnsim
        from trnsim.errors import CaptureError
        sim = trnsim.simulate("trn2")
        try:
            with sim:
                raise KeyError("mine")
        except KeyError:
            pass
        try:
            sim.workload
        except CaptureError as error:
            assert "has not ended" in str(error)
        else:
            raise AssertionError
        from trnsim.device import clock
        install, clock.install = clock.install, None
        try:
            trnsim.simulate("trn2").__enter__()
        except TypeError:
            pass
        clock.install = install
        with trnsim.simulate("trn2") as sim:
            torch.ones(3, device="trn").add_(1)
        assert len(sim.workload) >= 1
    """)
