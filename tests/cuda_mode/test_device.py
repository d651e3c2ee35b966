# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Scripts that name CUDA find torch's own CUDA device type, and torch.cuda as they know it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command import python
from jobs import records_of

from trnsim.workload import load

FIRST_STEP = """
    model = torch.nn.Linear(4, 4).cuda()
    model(torch.ones(2, 4, device="cuda")).sum().backward()
"""


def test_the_device_type_is_torchs_own(run: Callable) -> None:
    ran = run("""
        import torch
        from torch import nn
        device = torch.device("cuda:0")
        for make in (torch.zeros, torch.ones, torch.empty, torch.rand, torch.randn):
            made = make(3, device="cuda")
            assert made.is_cuda and made.device == device and made.device.type == "cuda"
        assert torch.arange(3, device=0).device == device
        assert torch.ones(2).cuda().to("cpu").to("cuda:0").to(0).get_device() == 0
        assert torch.ones(2, device="cuda").type() == "torch.cuda.FloatTensor"
        assert torch.cuda.LongTensor([1, 2]).sum().item() == 3
        with torch.device("cuda"):
            assert nn.Linear(3, 3).weight.is_cuda
        torch.set_default_device("cuda")
        assert torch.ones(3).is_cuda
        torch.set_default_device(None)
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).cuda()
        assert all(each.is_cuda for each in (*model.parameters(), *model.buffers()))
        model(torch.ones(2, 4, device=device)).sum().backward()
        assert model[0].weight.grad.device == device
        assert torch.accelerator.current_accelerator().type == "cuda"
        storage = model[0].weight.untyped_storage()
        storage.resize_(0)
        storage.resize_(64)
        assert storage.is_cuda and storage.nbytes() == 64
    """, "--cuda")  # fmt: skip
    assert ran.code == 0, ran.prints
    assert "CUDA mode: the simulated device is called cuda (asked for by --cuda)" in ran.notes()


def test_torch_cuda_is_the_simulated_machine(run: Callable) -> None:
    ran = run("""
        import torch
        assert torch.cuda.is_available() and torch.cuda.is_initialized()
        assert torch.cuda.device_count() == 4 and len(torch.cuda.default_generators) == 4
        assert torch.cuda.current_device() == 0
        properties = torch.cuda.get_device_properties("cuda:0")
        free, total = torch.cuda.mem_get_info()
        assert total == properties.total_memory and "Trainium2" in torch.cuda.get_device_name(0)
        assert torch.cuda.get_device_capability() == (9, 0) and torch.cuda.is_bf16_supported()
        x = torch.ones(1 << 20, device="cuda")
        assert torch.cuda.memory_allocated() == x.nbytes == torch.cuda.max_memory_allocated()
        del x
        assert torch.cuda.memory_allocated() == 0
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.memory_stats()["active_bytes.all.peak"] == 0
        assert "CUDA OOMs" in torch.cuda.memory_summary()
        state = torch.cuda.get_rng_state()
        first = torch.randn(8, device="cuda")
        torch.cuda.set_rng_state(state)
        assert torch.equal(first, torch.randn(8, device="cuda"))
        torch.manual_seed(3)
        first = torch.randn(8, device="cuda")
        torch.cuda.manual_seed_all(3)
        assert torch.equal(first, torch.randn(8, device="cuda"))
        with torch.cuda.device(1):
            assert torch.ones(1, device="cuda").device.index == 1
        side = torch.cuda.Stream()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        with torch.cuda.stream(side):
            assert torch.cuda.current_stream() == side
            torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        end.record()
        torch.cuda.synchronize()
        assert 0 < begin.elapsed_time(end) < 1
        assert torch.zeros(2).pin_memory().is_pinned()
        assert torch.backends.cudnn.version() is None
        torch.backends.cudnn.benchmark = True
        scaler = torch.amp.GradScaler("cuda")
        model = torch.nn.Linear(8, 8).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        with torch.autocast("cuda"):
            out = model(torch.ones(2, 8, device="cuda"))
        assert out.dtype == torch.float16
        scaler.scale(out.float().sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    """, "--cuda", "--chips", "4")  # fmt: skip
    assert ran.code == 0, ran.prints


def test_the_report_says_why_it_is_in_the_mode(run: Callable) -> None:
    ran = run(f"import torch\n{FIRST_STEP.replace('    ', '')}")
    assert ran.code == 0, ran.prints
    assert "train.py:3: model = torch.nn.Linear(4, 4).cuda()" in ran.notes()


def test_without_the_mode_the_way_into_it_is_named(run: Callable) -> None:
    script = f"import torch\n{FIRST_STEP.replace('    ', '')}"
    ran = run(script, "--no-cuda")
    assert ran.code == 1
    assert "train.py:3 asks for CUDA, and the simulated device is trn: use --cuda" in ran.errors
    ran = run("""
        import torch
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.ones(3, device=device)
    """, "--no-cuda")  # fmt: skip
    assert ran.code == 2
    assert "or run with --cuda, since the script names CUDA (train.py:3: " in ran.errors


def test_ranges_of_nvtx_are_modules(run: Callable, tmp_path: Path) -> None:
    ran = run("""
        import torch
        from torch import nn
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(256, 256)
            def forward(self, x):
                with torch.cuda.nvtx.range("scores"):
                    x = x @ x.T
                torch.cuda.nvtx.range_push("left open")
                return self.layer(x)
        net = Net().cuda()
        for _ in range(2):
            net(torch.ones(256, 256, device="cuda")).sum().backward()
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.mark("done")
    """, "--out", "out", "--cuda")  # fmt: skip
    assert ran.code == 0, ran.prints
    workload = load(tmp_path / "out" / "train.trnsim")
    ops = {(record["path"], record["op"]) for record in records_of(workload)}
    assert ("scores", "aten::mm") in ops
    assert ("left open", "aten::mm") not in ops
    assert ("layer", "aten::addmm") in ops


NAMES = """
import json, sys, types, torch
modules = [m for n, m in sorted(sys.modules.items()) if n == "torch.cuda" or
           n.startswith("torch.cuda.")]
def what(value):
    code = getattr(value, "__code__", None)
    return [type(value).__name__, getattr(value, "__module__", None),
            getattr(value, "__qualname__", None), code and code.co_filename]
names = {m.__name__: {k: what(v) for k, v in vars(m).items() if not k.startswith("__")}
         for m in modules}
names["torch._C"] = {k: what(getattr(torch._C, k)) for k in dir(torch._C) if "cuda" in k.lower()}
names["storage"] = {k: what(v) for k, v in vars(torch.UntypedStorage).items()}
names["answers"] = [torch.cuda.is_available(), torch.cuda.device_count(),
                    torch.cuda.is_initialized(), str(torch.device("cuda").type)]
text = json.dumps(names, sort_keys=True)
"""


def test_no_name_of_torch_cuda_changes_without_the_mode(run: Callable, tmp_path: Path) -> None:
    alone = python(f"{NAMES}\nprint(text)", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    installed = python(f"import trnsim.device\n{NAMES}\nprint(text)")
    assert alone.returncode == installed.returncode == 0, alone.stderr + installed.stderr
    assert len(alone.stdout) > 10_000
    assert installed.stdout == alone.stdout
    ran = run(f"{NAMES}\nopen('names.json', 'w').write(text)\ntorch.ones(2, device='trn') + 1\n")
    assert ran.code == 0, ran.prints
    assert (tmp_path / "names.json").read_text() == alone.stdout.strip()


@pytest.mark.parametrize("first", ["import torch", "import trnsim.device"])
def test_the_mode_begins_before_torch(first: str) -> None:
    done = python(f"""
        {first}
        from trnsim.capture.cuda import early
        from trnsim.errors import CaptureError
        try:
            early.load()
        except CaptureError as error:
            print(error)
    """)
    assert "must begin before torch is imported" in done.stdout
