# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Models that nobody here wrote, through `trnsim run`: timm's and transformers', random weights."""

import json
import textwrap

import pytest
from command import trnsim

RESNET = """
    import timm, torch
    device = torch.accelerator.current_accelerator()
    model = timm.create_model("resnet50", num_classes=10).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images = torch.randn(2, 3, 64, 64).to(device)
    labels = torch.tensor([1, 2]).to(device)
    for step in range(3):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", loss.item())
"""

GPT2 = """
    import torch, transformers
    device = torch.accelerator.current_accelerator()
    config = transformers.GPT2Config(n_layer=2, n_embd=128, n_head=2, vocab_size=1000)
    model = transformers.GPT2LMHeadModel(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, 1000, (2, 32)).to(device)
    for step in range(3):
        loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", loss.item())
"""

LLAMA_70B = """
    import resource, time, torch, transformers
    from transformers.models.llama import modeling_llama
    device = torch.accelerator.current_accelerator()
    config = transformers.LlamaConfig(
        hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64,
        num_key_value_heads=8, vocab_size=128256, use_cache=False, dtype="bfloat16")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    torch.set_default_dtype(torch.bfloat16)
    with device:
        model = modeling_llama.LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.randint(0, 1000, (1, 4096)).to(device)
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print("host memory grew by", growth, "KiB")
    assert growth < 0.7 * 2**20
"""


def run(folder, script, *options):
    (folder / "train.py").write_text(textwrap.dedent(script))
    return trnsim("run", "--json", *options, "train.py", cwd=folder)


@pytest.mark.parametrize(("package", "script"), [("timm", RESNET), ("transformers", GPT2)])
def test_a_public_model_gives_one_workload_in_both_modes(package, script, tmp_path):
    pytest.importorskip(package, reason="pip install trnsim[clients]")
    hashes = set()
    for mode in ("phantom", "compute"):
        done = run(tmp_path, script, "--mode", mode)
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert document["step_time_s"] > 0 and document["fits"]
        assert sum(op["share"] for op in document["fallback_ops"]) < 0.01
        hashes.add(document["workload_hash"])
    assert len(hashes) == 1


def test_llama_70b_is_stepped_without_its_memory(tmp_path):
    pytest.importorskip("transformers", reason="pip install trnsim[clients]")
    done = run(tmp_path, LLAMA_70B, "--no-oom")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["parameters"] == 70_553_706_496
    assert not document["fits"]
    # Weights, gradients and two moments in bfloat16.
    assert document["memory_peak_bytes"] > 4 * 2 * 70_553_706_496


def test_llama_70b_is_refused_by_one_chip(tmp_path):
    pytest.importorskip("transformers", reason="pip install trnsim[clients]")
    done = run(tmp_path, LLAMA_70B)
    assert done.returncode == 1
    assert "out of memory. Tried to allocate" in done.stderr
    assert done.stdout == ""
