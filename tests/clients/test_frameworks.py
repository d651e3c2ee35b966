# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Training frameworks from PyPI, unmodified, through `trnsim run`: they choose the device."""

import json
import re
import textwrap

import pytest
from command import interpreter, trnsim

WHY = "pip install trnsim[clients]"

TRAINER = """
    import sys, torch
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=128))
    rows = [torch.randint(0, 128, (32,)) for _ in range(512)]
    arguments = TrainingArguments(
        "out", max_steps=3, per_device_train_batch_size=2, report_to="none", save_strategy="no",
        logging_steps=1, disable_tqdm=True, seed=1, use_cpu="cpu" in sys.argv,
        bf16="bf16" in sys.argv, torch_compile="compile" in sys.argv)
    data = [{"input_ids": row, "labels": row} for row in rows]
    trainer = Trainer(model, arguments, train_dataset=data)
    trainer.train()
    for entry in trainer.state.log_history:
        if "loss" in entry:
            print("loss", entry["loss"], file=sys.stderr)
    print("device", arguments.device.type, arguments.world_size, file=sys.stderr)
"""

ACCELERATE = """
    import sys, torch
    from accelerate import Accelerator
    torch.manual_seed(0)
    accelerator = Accelerator(
        cpu="cpu" in sys.argv, mixed_precision="bf16" if "bf16" in sys.argv else "no",
        gradient_accumulation_steps=2)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = torch.utils.data.TensorDataset(torch.randn(2048, 16), torch.randint(0, 4, (2048,)))
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for index, (x, y) in zip(range(6), loader):
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        print("loss", loss.item(), file=sys.stderr)
    accelerator.save_state("state")
    accelerator.load_state("state")
    print("device", accelerator.device.type, accelerator.num_processes, file=sys.stderr)
"""

LIGHTNING = """
    import sys, torch
    import lightning
    torch.manual_seed(0)
    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(
                torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
        def training_step(self, batch, index):
            loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            print("loss", loss.item(), file=sys.stderr)
            return loss
        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-2)
    data = torch.utils.data.TensorDataset(torch.randn(2048, 16), torch.randint(0, 4, (2048,)))
    trainer = lightning.Trainer(
        max_steps=3, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu" if "cpu" in sys.argv else "auto",
        precision="bf16-mixed" if "bf16" in sys.argv else "32-true",
        num_nodes=4 if "bf16" in sys.argv else 1)  # of 16 chips
    model = Model()
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=8))
    device = trainer.strategy.root_device
    print("device", device.type, trainer.world_size, file=sys.stderr)
"""

FABRIC = """
    import sys, torch, lightning
    from torch import nn
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    fabric = lightning.Fabric(
        accelerator="cpu" if "cpu" in sys.argv else "auto",
        precision="bf16-mixed" if "bf16" in sys.argv else "32-true",
        strategy="fsdp" if "bf16" in sys.argv else "auto",
        num_nodes=4 if "bf16" in sys.argv else 1)  # of 16 chips
    fabric.launch()
    model = fabric.setup(model)
    optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters(), lr=1e-2))
    data = torch.utils.data.TensorDataset(torch.randn(2048, 16), torch.randint(0, 4, (2048,)))
    loader = fabric.setup_dataloaders(torch.utils.data.DataLoader(data, batch_size=8))
    for _, (x, y) in zip(range(3), loader):
        loss = nn.functional.cross_entropy(model(x), y)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        print("loss", loss.item(), file=sys.stderr)
    print("device", fabric.device.type, fabric.world_size, file=sys.stderr)
"""

TORCHVISION = """
    import os, sys, torch, torchvision
    from torch import distributed, nn
    from torchvision.transforms import v2
    torch.manual_seed(0)
    device = torch.device("cpu")
    if "cpu" not in sys.argv:
        device = torch.accelerator.current_accelerator()
        torch.accelerator.set_device_index(int(os.environ.get("LOCAL_RANK", 0)))
    model = torchvision.models.resnet18(num_classes=4).to(device)
    ranks = 1
    if "bf16" in sys.argv:
        distributed.init_process_group()
        ranks = distributed.get_world_size()
        model = nn.parallel.DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(model))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    to_tensor = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    data = torchvision.datasets.FakeData(12, (3, 64, 64), 4, to_tensor)
    mixed = v2.MixUp(num_classes=4)
    model.train()
    for images, labels in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True):
        images, labels = mixed(images, labels)
        images, labels = images.to(device, non_blocking=True), labels.to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled="bf16" in sys.argv):
            loss = nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        print("loss", loss.item(), file=sys.stderr)
    print("device", device.type, ranks, file=sys.stderr)
"""

TIMM = """
    import os, sys, torch, timm
    from timm import loss, optim, scheduler, utils
    from torch import distributed, nn
    torch.manual_seed(0)
    device = torch.device("cpu")
    if "cpu" not in sys.argv:
        device = torch.accelerator.current_accelerator()
        torch.accelerator.set_device_index(int(os.environ.get("LOCAL_RANK", 0)))
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=64, num_classes=4, depth=2).to(device)
    average = utils.ModelEmaV3(model, decay=0.9)
    ranks = 1
    if "bf16" in sys.argv:
        distributed.init_process_group()
        ranks = distributed.get_world_size()
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = optim.create_optimizer_v2(model, "lamb", lr=0.01, weight_decay=0.05)
    plan = scheduler.CosineLRScheduler(optimizer, 10, warmup_t=1, warmup_lr_init=1e-3)
    criterion = loss.LabelSmoothingCrossEntropy(0.1)
    images, labels = torch.rand(3, 4, 3, 64, 64), torch.randint(0, 4, (3, 4))
    model.train()
    for step in range(3):
        with torch.autocast(device.type, torch.bfloat16, enabled="bf16" in sys.argv):
            value = criterion(model(images[step].to(device)), labels[step].to(device))
        optimizer.zero_grad()
        value.backward()
        utils.dispatch_clip_grad(model.parameters(), 1.0)
        optimizer.step()
        average.update(model, step=step)
        plan.step(step)
        print("loss", value.item(), file=sys.stderr)
    print("device", device.type, ranks, file=sys.stderr)
"""

SCRIPTS = {
    "transformers": TRAINER,
    "accelerate": ACCELERATE,
    "lightning": LIGHTNING,
    "lightning.fabric": FABRIC,
    "torchvision": TORCHVISION,
    "timm": TIMM,
}


@pytest.fixture(params=SCRIPTS)
def script(request, tmp_path):
    """A folder with the framework's train.py."""
    if request.param == "transformers":
        pytest.importorskip("accelerate", reason=WHY)
    pytest.importorskip(request.param, reason=WHY)
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPTS[request.param]))
    return tmp_path


def losses_of(text):
    return [float(each) for each in re.findall(r"^loss (\S+)$", text, re.MULTILINE)]


def run(folder, *options):
    done = trnsim("run", "--json", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_values_are_those_of_the_cpu(script):
    on_cpu = interpreter("train.py", "cpu", cwd=script)
    assert on_cpu.returncode == 0, on_cpu.stderr
    document, said = run(script, "--mode", "compute", "train.py")
    assert "device trn 1" in said
    assert len(losses_of(said)) >= 3
    assert losses_of(said) == pytest.approx(losses_of(on_cpu.stderr), rel=1e-4)
    assert document["step_time_s"] > 0


def test_bf16_on_64_chips_reduces_gradients(script):
    document, said = run(script, "--machine", "trn2-ultra", "--chips", "64", "train.py", "bf16")
    assert "device trn 64" in said
    assert document["chips_used"] == 64
    assert document["breakdown_s"]["exposed_communication"] > 0


def test_mixed_precision_of_lightning_computes_in_bfloat16(tmp_path):
    pytest.importorskip("lightning", reason=WHY)
    text = textwrap.dedent(LIGHTNING).replace(
        "        print(",
        "        print('made', self.net(batch[0]).dtype, file=sys.stderr)\n        print(",
    )
    (tmp_path / "train.py").write_text(text)
    _, said = run(tmp_path, "--machine", "trn2-ultra", "--chips", "64", "train.py", "bf16")
    assert "made torch.bfloat16" in said and "Disabling autocast" not in said
    _, said = run(tmp_path, "train.py")
    assert "made torch.float32" in said


def test_the_trainer_compiles_to_the_same_values(tmp_path):
    pytest.importorskip("accelerate", reason=WHY)
    pytest.importorskip("transformers", reason=WHY)
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAINER))
    _, eager = run(tmp_path, "--mode", "compute", "train.py")
    _, compiled = run(tmp_path, "--mode", "compute", "train.py", "compile")
    assert losses_of(compiled) == pytest.approx(losses_of(eager), rel=1e-4)


def test_outside_a_capture_frameworks_choose_as_without_trnsim(tmp_path):
    pytest.importorskip("accelerate", reason=WHY)
    (tmp_path / "plain.py").write_text(
        "import trnsim.device, accelerate\nprint(accelerate.Accelerator().device.type)\n"
    )
    done = interpreter("plain.py", cwd=tmp_path)
    assert done.stdout.split() == ["cpu"], done.stderr


@pytest.mark.parametrize("mode", ["phantom", "compute"])
def test_nms_keeps_all_boxes_whose_values_are_unknown(tmp_path, mode):
    pytest.importorskip("torchvision", reason=WHY)
    (tmp_path / "boxes.py").write_text(
        textwrap.dedent("""
        import sys, torch
        from torchvision.ops import batched_nms, nms
        torch.manual_seed(0)
        corners, scores = torch.rand(8192, 2), torch.rand(8192)
        boxes = torch.cat([corners, corners + 0.1], 1)
        classes = torch.zeros(8192, dtype=torch.long)
        on = [each.to("trn") + 0 for each in (boxes, scores)]
        print("kept", len(nms(*on, 0.5)), len(batched_nms(*on, classes.to("trn"), 0.5)),
              len(nms(boxes, scores, 0.5)), file=sys.stderr)
        """)
    )
    _, said = run(tmp_path, "--mode", mode, "boxes.py")
    kept, of_classes, on_cpu = map(int, re.search(r"kept (\d+) (\d+) (\d+)", said).groups())
    assert on_cpu < 8192
    assert kept == of_classes == (8192 if mode == "phantom" else on_cpu)
