# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A script under capture behaves as under python: arguments, exit code, prints, exceptions."""

from __future__ import annotations

import gc
import os
import sys
import textwrap

import pytest

import trnsim.device  # noqa: F401
from trnsim.capture.script import run_script
from trnsim.capture.world import World, current_world
from trnsim.errors import CaptureError

ONE_STEP = """
    import torch
    model = torch.nn.Linear(4, 2).to("trn")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def step():
        optimizer.zero_grad()
        loss = model(torch.ones(3, 4).to("trn")).square().mean()
        loss.backward()
        optimizer.step()
        return loss
"""


@pytest.fixture
def script(tmp_path):
    """Writes a script and returns its path."""
    gc.collect()

    def write(text: str, name: str = "train.py", with_step: bool = True) -> str:
        path = tmp_path / name
        path.write_text((textwrap.dedent(ONE_STEP) if with_step else "") + textwrap.dedent(text))
        return str(path)

    yield write
    gc.collect()


def test_a_script_has_its_arguments_name_and_folder(script, tmp_path, capsys):
    (tmp_path / "beside.py").write_text("value = 7\n")
    path = script(
        """
        import sys, beside
        step()
        print(__name__, sys.argv[1:], beside.value, sys.modules["__main__"].__file__ == __file__)
        """
    )
    before = list(sys.path), sys.argv
    result = run_script(path, ["--a", "b c"])
    assert capsys.readouterr().out == "__main__ ['--a', 'b c'] 7 True\n"
    assert result.exit_code == 0 and result.exception is None
    assert (list(sys.path), sys.argv) == before


def test_a_module_runs_by_name(tmp_path, monkeypatch, capsys):
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(
        textwrap.dedent(ONE_STEP) + "step()\nprint(__name__, __package__)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert run_script("my_package", is_module=True).exit_code == 0
    assert capsys.readouterr().out == "__main__ my_package\n"


@pytest.mark.parametrize(
    "statement, code", [("sys.exit()", 0), ("sys.exit(3)", 3), ("sys.exit('gone')", 1)]
)
def test_the_exit_code_is_the_scripts_own(script, capsys, statement, code):
    result = run_script(script(f"import sys\nstep()\n{statement}\n"))
    assert result.exit_code == code
    assert capsys.readouterr().err == ("gone\n" if code == 1 else "")


def test_an_exception_has_the_scripts_traceback_and_no_frame_of_ours(script, capsys):
    path = script(
        """
        class Broken(torch.nn.Module):
            def forward(self, x):
                raise ValueError("what the script says")
        step()
        Broken()(1)
        """
    )
    result = run_script(path)
    error = capsys.readouterr().err
    assert result.exit_code == 1 and isinstance(result.exception, ValueError)
    assert error.startswith(f'Traceback (most recent call last):\n  File "{path}", line ')
    assert error.endswith("ValueError: what the script says\n")
    assert f"trnsim{os.sep}capture" not in error and "runpy" not in error


def test_a_syntax_error_is_the_scripts_too(script, capsys):
    result = run_script(script("def broken(:\n", with_step=False))
    assert result.exit_code == 1
    assert "SyntaxError" in capsys.readouterr().err


def test_a_script_that_does_not_exist_is_one_line():
    with pytest.raises(CaptureError, match="^no such script: 'nowhere.py'$"):
        run_script("nowhere.py")


def test_an_interrupt_passes_and_ends_the_capture(script):
    with pytest.raises(KeyboardInterrupt):
        run_script(script("step()\nraise KeyboardInterrupt\n"))
    assert current_world() is None
    assert run_script(script("step()\n")).exit_code == 0


def test_a_script_can_end_after_a_step_with_its_finally_blocks_run(script, capsys):
    path = script(
        """
        try:
            for i in range(100):
                step()
                print(i)
        except Exception:
            print("not for the script")
        finally:
            print("cleaned up")
        """
    )
    result = run_script(path, stop_after_step=2)
    assert capsys.readouterr().out == "0\n1\ncleaned up\n"
    assert result.exit_code == 0
    # The third is where it was stopped.
    assert [step.whole for step in result.workload.find_steps()] == [True, True, False]


def test_a_script_on_the_cpu_names_the_device_of_its_tensors(script):
    path = script("import torch\ntorch.nn.Linear(2, 2)(torch.ones(1, 2))\n", with_step=False)
    with pytest.raises(CaptureError, match="no op of .* ran on trn: its tensors were on cpu"):
        run_script(path)


def test_a_script_that_fails_before_any_op_keeps_its_exit_code(script):
    assert run_script(script("import sys\nsys.exit(4)\n", with_step=False)).exit_code == 4


def test_a_script_sees_the_simulated_job_as_torchrun_would_say_it(script, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "5")
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    path = script(
        """
        import os
        step()
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
        print([os.environ[name] for name in names], torch.accelerator.device_count())
        """
    )
    run_script(path, world=World(17, 64, 16))
    assert capsys.readouterr().out == "['17', '64', '1', '16', '1'] 16\n"
    assert os.environ["RANK"] == "5" and "LOCAL_RANK" not in os.environ


def test_one_rank_is_a_job_of_one(script, capsys):
    path = script(
        """
        import torch.distributed as dist
        dist.init_process_group()
        step()
        print(dist.get_world_size(), dist.get_rank())
        """
    )
    result = run_script(path)
    assert capsys.readouterr().out == "1 0\n"
    assert result.workload.world_size == 1


def test_collectives_alone_are_work_of_the_device(script):
    path = script(
        """
        import torch, torch.distributed as dist
        dist.init_process_group()
        dist.all_reduce(torch.empty(1024, device="trn"))
        """,
        with_step=False,
    )
    assert run_script(path, world=World(0, 16)).exit_code == 0


def test_a_script_that_waits_for_an_unknown_value_is_told(script, capfd):
    path = script(
        """
        big = torch.ones(1 << 15, device="trn").mul(2)
        for _ in range(1500):
            if big.sum() < 0.1:
                break
        """
    )
    assert run_script(path).exit_code == 0
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("trnsim: ")]
    assert len(told) == 1 and "--mode compute" in told[0]


def test_a_script_that_catches_everything_still_stops_after_its_step(script, capsys):
    path = script(
        """
        for index in range(9):
            try:
                step()
                print(index)
            except BaseException:
                pass
        """
    )
    run_script(path, stop_after_step=2)
    assert capsys.readouterr().out.split() == ["0", "1"]


def test_a_script_without_a_process_group_uses_one_of_the_chips(script):
    result = run_script(script("step()\n"), world=World(0, 64, 64))
    assert result.workload.world_size == 1
    assert result.workload.notes == ["1 of 64 chips used: the script is not distributed"]


def test_a_script_with_a_process_group_uses_all_ranks(script):
    path = script(
        """
        import torch.distributed as dist
        dist.init_process_group()
        step()
        dist.all_reduce(model.weight.data)
        """
    )
    result = run_script(path, world=World(0, 64, 64))
    assert result.workload.world_size == 64
    assert result.workload.notes == []


def test_a_script_that_spawns_its_ranks_runs_the_captured_one_in_process(script, capsys):
    path = script(
        """
        import os
        import torch.distributed as dist
        import torch.multiprocessing as mp
        def worker(rank, size, parent):
            dist.init_process_group("trn", rank=rank, world_size=size)
            step()
            print(rank, size, os.getpid() == parent)
        mp.spawn(worker, args=(torch.accelerator.device_count(), os.getpid()),
                 nprocs=torch.accelerator.device_count())
        """
    )
    result = run_script(path, world=World(0, 16, 16))
    assert capsys.readouterr().out == "0 16 True\n"
    assert result.workload.world_size == 16


def test_a_script_under_torchrun_runs_in_process(script, capsys):
    path = script("import sys, os\nstep()\nprint(sys.argv[1:], os.environ['WORLD_SIZE'])\n")
    result = run_script(
        "torch.distributed.run",
        ["--nproc-per-node", "4", path, "--flag"],
        is_module=True,
        world=World(0, 4),
    )
    assert capsys.readouterr().out == "['--flag'] 4\n"
    assert result.exit_code == 0


def test_point_to_point_with_other_ranks_is_noted(script):
    path = script(
        """
        import torch.distributed as dist
        dist.init_process_group()
        step()
        dist.send(model.weight.data, 1)
        """
    )
    result = run_script(path, world=World(0, 2))
    assert any("point-to-point" in note for note in result.workload.notes)


def test_remote_procedure_calls_are_refused(script, capsys):
    path = script(
        """
        import torch.multiprocessing as mp
        import torch.distributed.rpc as rpc
        def work(rank):
            rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
        step()
        mp.spawn(work, nprocs=2)
        """
    )
    result = run_script(path, world=World(0, 2, 2))
    assert result.exit_code == 1
    assert "torch.distributed.rpc is not simulated" in capsys.readouterr().err


GPT_DDP = """
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    class Layer(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.place = nn.Embedding(65, 32), nn.Embedding(16, 32)
            self.layers = nn.ModuleList(Layer(32, 4) for _ in range(2))
            self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 65, bias=False)
            nn.init.normal_(self.embed.weight, std=0.02)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            x = self.embed(ids) + self.place(torch.arange(ids.size(1), device=ids.device))
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x))

    dist.init_process_group()
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(GPT().to("trn"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(3):
        ids = torch.randint(0, 65, (4, 17)).to("trn")
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.view(-1, 65), ids[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(loss.item())
    dist.destroy_process_group()
"""


def test_both_modes_record_the_same_workload_op_for_op(script, capsys):
    path = script(GPT_DDP, with_step=False)
    results = {}
    for mode in ("compute", "phantom"):
        results[mode] = run_script(path, world=World(0, 64, 64), mode=mode)
        gc.collect()
    assert results["compute"].exit_code == 0, capsys.readouterr().err
    assert results["compute"].workload.compare(results["phantom"].workload) == []
    assert results["compute"].workload.hash == results["phantom"].workload.hash
    losses = [float(line) for line in capsys.readouterr().out.split()]
    assert losses[0] == pytest.approx(4.2, abs=0.4)  # ln 65, of the compute run


def test_a_frozen_encoder_is_in_the_step_after_which_the_script_ends(script):
    path = script(
        """
        import torch
        encoder, model = (torch.nn.Linear(8, 8).to("trn") for _ in range(2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            with torch.no_grad():
                code = encoder(torch.ones(4, 8, device="trn"))
            model(code).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
        with_step=False,
    )
    whole, ended = run_script(path).workload, run_script(path, stop_after_step=2).workload
    step, last = whole.find_steps()[1], ended.find_steps()[1]
    assert (last.begin, last.end) == (step.begin, step.end)
    assert ended.outside_step(last).tolist() == whole.outside_step(step).tolist()
    assert len(ended.find_steps()) == 3 and not ended.find_steps()[2].whole
