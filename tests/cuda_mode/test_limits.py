# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What the CUDA mode cannot serve is said at once, with the script's line."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

# (what a script does, what it is told); each raises by itself
REFUSED = [
    (
        "torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda())(x)",
        "DataParallel is not served in the CUDA mode: one process with several devices",
    ),
    (
        "torch.cuda.cudart().cudaHostRegister(0, 0, 0)",
        "torch.cuda.cudart().cudaHostRegister is not served in the CUDA mode",
    ),
    ("torch.cuda._sleep(100)", "torch._C._cuda_sleep is not served in the CUDA mode"),
    ("torch.cuda.MemPool()", "torch.cuda.MemPool is not served in the CUDA mode"),
    ("torch.cuda.utilization()", "what NVML measures is not served in the CUDA mode"),
    ("torch.cuda.comm.broadcast(x, [0, 1])", "one process with several devices"),
    ("torch.cuda.nccl.unique_id()", "torch._C._nccl_unique_id is not served in the CUDA mode"),
    (
        "torch.sparse_coo_tensor([[0], [0]], [1.0], (2, 2), device='cuda')",
        "sparse tensors are not supported on cuda: use dense ones",
    ),
    (
        "torch.nn.Embedding(9, 4, sparse=True).cuda()(y).sum().backward()",
        "sparse gradients are not supported on this device: leave out sparse=True",
    ),
]


def test_refusals_name_what_was_asked_and_the_line(run: Callable) -> None:
    lines = ["import torch, torch.cuda.comm, torch.cuda.nccl"]
    lines += ["x, y = torch.ones(2, 2, device='cuda'), torch.tensor([1], device='cuda')"]
    for asked, _ in REFUSED:
        lines += ["try:", f"    {asked}", "except Exception as error: print('SAID', error)"]
    ran = run("\n".join(lines), "--cuda", "--chips", "2")
    assert ran.code == 0, ran.prints
    said = [line for line in ran.prints.splitlines() if line.startswith("SAID ")]
    assert len(said) == len(REFUSED), ran.prints
    for index, (line, (asked, told)) in enumerate(zip(said, REFUSED, strict=True)):
        assert told in line, (asked, line)
        if "not served" in told:
            assert f"train.py:{4 + 3 * index}: " in line


def test_data_parallel_of_one_device_runs(run: Callable) -> None:
    ran = run("""
        import torch
        model = torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda())
        model(torch.ones(2, 2)).sum().backward()
    """)  # fmt: skip
    assert ran.code == 0, ran.prints


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            """
            import torch, triton
            @triton.jit
            def kernel(x): pass
            kernel[(1,)](torch.ones(3, device="cuda"))
            """,
            "train.py:5 launches a Triton kernel: the CUDA mode serves what goes through PyTorch",
        ),
        (
            """
            import torch
            from torch.utils.cpp_extension import load_inline
            torch.ones(3, device="cuda")
            load_inline("own", "", "__global__ void own() {}", functions=[])
            """,
            "train.py:5 builds an extension of CUDA code: the CUDA mode serves",
        ),
        (
            """
            import torch
            torch.cuda.FloatTensor(3)
            raise RuntimeError("CUDA error: CUDA driver version is insufficient")
            """,
            "train.py:4 calls NVIDIA's runtime, by a kernel or a library of its own",
        ),
    ],
)
def test_kernels_of_a_scripts_own_end_it_with_their_line(
    run: Callable, text: str, told: str
) -> None:
    if "triton" in text:
        pytest.importorskip("triton")
    ran = run(text, "--cuda")
    assert ran.code == 1
    assert told in ran.errors, ran.prints


DRIVER = """
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int* count) { *count = %d; return 0; }
"""


@pytest.mark.parametrize("gpus", [0, 2])
def test_a_real_gpu_is_in_the_way(run: Callable, tmp_path: Path, gpus: int) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler is not None
    source = tmp_path / "driver.c"
    source.write_text(DRIVER % gpus)
    library = tmp_path / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    text = "import torch\nx = torch.ones(3, device='cuda') + 1\n"
    for options in ((), ("--cuda",)):
        ran = run(text, *options, LD_LIBRARY_PATH=str(tmp_path))
        if gpus == 0:
            assert ran.code == 0, ran.prints
            continue
        assert ran.code == 2
        assert "this process has 2 real GPUs of that name" in ran.errors
        assert "CUDA_VISIBLE_DEVICES=" in ran.errors
        assert ("the script asks for CUDA (train.py:2: x = " in ran.errors) == (not options)


def test_several_devices_in_one_process_are_named(run: Callable) -> None:
    ran = run("""
        import torch
        first, second = (torch.nn.Linear(4, 4).to(f"cuda:{index}") for index in range(2))
        second(first(torch.ones(2, 4, device="cuda:0")).to("cuda:1")).sum().backward()
    """, "--chips", "4")  # fmt: skip
    assert ran.code == 0, ran.prints
    assert "tensors were on cuda:0 and cuda:1: one process with several devices" in ran.notes()


def test_a_tensor_for_another_process_is_refused(run: Callable) -> None:
    ran = run("""
        import torch, torch.multiprocessing as mp
        def work(model): pass
        if __name__ == "__main__":
            mp.set_start_method("spawn", force=True)
            model = torch.nn.Linear(4, 4).to("cuda")
            model.share_memory()
            process = mp.Process(target=work, args=(model,))
            process.start()
    """)
    assert ran.code == 1
    assert "another process of torch.multiprocessing is not served in the CUDA mode" in ran.prints
    assert "use DistributedDataParallel" in ran.prints


def test_a_run_without_work_on_the_device_names_the_cuda_mode(run: Callable) -> None:
    text = "import torch\ntorch.ones(3) + 1\n"
    assert "or run with --cuda, where something that it imports" in run(text).errors
    assert "--cuda" not in run(text, "--no-cuda").errors


def test_ops_of_another_library_are_served(run: Callable) -> None:
    pytest.importorskip("torchvision")
    ran = run("""
        import torch, torchvision
        boxes = torch.tensor([[0, 0, 9.0, 9], [1, 1, 9, 9], [20, 20, 30, 30]], device="cuda")
        kept = torchvision.ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7], device="cuda"), 0.5)
        assert kept.is_cuda and kept.tolist() == [0, 2]
        pixels = torch.randn(1, 3, 16, 16, device="cuda", requires_grad=True)
        torchvision.ops.roi_align(pixels, [boxes[:1]], (4, 4)).sum().backward()
        assert pixels.grad.is_cuda
    """, "--mode", "compute")  # fmt: skip
    assert ran.code == 0, ran.prints
