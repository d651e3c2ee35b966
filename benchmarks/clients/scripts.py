# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The scripts, their commits, and how each is started: on `trn`, and on the CPU where it can be."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from clients import data


@dataclass(frozen=True)
class Script:
    """One script. Its paths are relative to the copy of its checkout.

    `blob` is git's hash of the file at `commit`. `copied` are what is copied of the checkout. The
    words {data} and {copy} in arguments and variables stand for the folder of the data and that of
    the copy. `on_cpu` are the arguments in place of `on_trn` for the run on the CPU; None where the
    script has no such run. The last matches of `result` are compared; `no_values` says why they
    cannot be equal.
    """

    name: str
    checkout: str
    commit: str
    file: str
    blob: str
    arguments: str
    prepare: Callable[[Path, Path], None]
    chips: tuple[int, ...] = (1,)
    copied: tuple[str, ...] = (".",)
    cwd: str = "."
    module: str = ""
    on_trn: str = ""
    on_cpu: str | None = None
    result: str = ""
    no_values: str = ""
    variables: dict[str, str] = field(default_factory=dict)


def _none(copy: Path, folder: Path) -> None:
    """The script makes its data itself."""


def _nano(copy: Path, folder: Path) -> None:
    data.write_characters(copy / "data" / "shakespeare_char")


def _mnist(copy: Path, folder: Path) -> None:
    data.write_digits(copy / "data" / "MNIST" / "raw")


def _dcgan(copy: Path, folder: Path) -> None:
    (copy / "dcgan" / "out").mkdir()


def _words(copy: Path, folder: Path) -> None:
    data.write_texts(folder)
    (copy / "word_language_model" / "out").mkdir()


def _clm(copy: Path, folder: Path) -> None:
    data.write_texts(folder)
    data.write_llama(folder / "llama", weights=False)


def _images(copy: Path, folder: Path) -> None:
    data.write_images(folder)


def _picotron(copy: Path, folder: Path) -> None:
    """Its configuration, the model that it would download, and a flash_attn with the three names
    that it imports and, with FLASH_ATTEN=0, never calls."""
    data.write_samples(folder / "text" / "train.jsonl", 40)
    data.write_llama(folder / "llama", weights=True)
    (copy / "hf_model_safetensors").mkdir()
    weights = (folder / "llama" / "model.safetensors").read_bytes()
    (copy / "hf_model_safetensors" / "model.safetensors").write_bytes(weights)
    known = copy / "hf_model" / folder.relative_to("/") / "llama"
    known.mkdir(parents=True)
    config = {
        "distributed": {
            "tp_size": 2, "cp_size": 1, "pp_size": 1, "dp_size": 1, "pp_engine": "1f1b",
            "backend": "nccl", "use_cpu": False,
        },
        "model": {
            "name": str(folder / "llama"), "dtype": "bfloat16", "use_flash_attention": False,
            "use_fused_adam": False,
        },
        "training": {
            "seed": 42, "learning_rate": 3e-4, "total_train_steps": 3, "seq_length": 64,
            "micro_batch_size": 2, "gradient_accumulation_steps": 1, "num_samples": 40,
            "max_tokens": None,
        },
        "dataset": {
            "name": str(folder / "text"), "subset_name": None, "num_workers": 0, "num_proc": 1,
        },
        "checkpoint": {"save_dir": "ckpt", "save_frequency": 300, "load_path": ""},
        "logging": {"use_wandb": False, "project_name": "picotron", "run_name": None},
        "environment": {
            "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "FLASH_ATTEN": "0",
            "HF_TOKEN": "none",
        },
    }  # fmt: skip
    (folder / "tp2.json").write_text(json.dumps(config))
    package = folder / "names" / "flash_attn"
    for module, name in (
        ("flash_attn_interface", "flash_attn_func"),
        ("layers/rotary", "apply_rotary_emb"),
        ("ops/triton/layer_norm", "layer_norm_fn"),
    ):
        file = package / f"{module}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{name} = None\n")
    (folder / "names" / "wandb.py").write_text("")


def _titan(copy: Path, folder: Path) -> None:
    file = copy / "tests" / "assets" / "c4_test" / "data.json"
    if not file.exists():
        data.write_samples(file, 200)


_NANO = (
    "config/train_shakespeare_char.py --compile=False --eval_iters=2 --log_interval=1"
    " --block_size=64 --batch_size=4 --n_layer=2 --n_head=2 --n_embd=64 --max_iters=5"
    " --eval_interval=5 --lr_decay_iters=5 --dropout=0.0"
)
_CLM = (
    "--train_file {data}/train.txt --validation_file {data}/valid.txt --config_name {data}/llama"
    " --tokenizer_name {data}/llama --block_size 64 --per_device_train_batch_size 4 --max_steps 5"
    " --do_train --output_dir out/clm2 --seed 1 --report_to none"
)
_TITAN = (
    "--module llama3 --config llama3_debugmodel --training.disable_cuda_graphs --training.steps 3"
    " --training.num_tokens_per_microbatch_per_dp_rank 256 --training.max_context_length 128"
    " --dump_folder out/titan --validator.freq 100"
)
_EXAMPLES = "77f55b91"
_STREAMS = "it draws on the device, whose random numbers are another stream than the host's"

SCRIPTS = (
    Script(
        "nanoGPT train.py", "nanoGPT", "3adf61e1", "train.py",
        "de5785051050d64bbda37a4964c2c079f0739b2b", _NANO, _nano,
        on_trn="--device=trn", on_cpu="--device=cpu", result=r"iter 5: loss (\S+),",
    ),
    Script(
        "examples mnist", "examples", _EXAMPLES, "mnist/main.py",
        "dee5a384cb2c43acf7c7ce8e521330ccd01c6e92", "--epochs 1 --batch-size 32", _mnist,
        copied=("mnist",), cwd="mnist", on_cpu="--no-accel",
        no_values="it shuffles the digits on an accelerator only",
    ),
    Script(
        "examples dcgan", "examples", _EXAMPLES, "dcgan/main.py",
        "b150174ca228175d8bc97dba6dbdb3791d55e32b",
        "--dataset fake --dry-run --niter 1 --batchSize 4 --workers 0 --outf out --dataroot x"
        " --manualSeed 1", _dcgan,
        copied=("dcgan",), cwd="dcgan", on_trn="--accel", on_cpu="",
        no_values=_STREAMS,
    ),
    Script(
        "examples word_language_model", "examples", _EXAMPLES, "word_language_model/main.py",
        "581b17cecd7d8008387c89f8e4b708dd33d88d01",
        "--data {data} --model Transformer --emsize 32 --nhid 32 --nlayers 1 --nhead 2 --epochs 1"
        " --dry-run --save out/wlm.pt", _words,
        copied=("word_language_model",), cwd="word_language_model", on_trn="--accel", on_cpu="",
        no_values=_STREAMS,
    ),
    Script(
        "examples distributed/ddp", "examples", _EXAMPLES, "distributed/ddp/example.py",
        "d64b4739769e3c36cc5522605edd43582895b59b", "", _none, chips=(2, 64),
        copied=("distributed/ddp",), cwd="distributed/ddp",
    ),
    Script(
        "examples distributed/FSDP2", "examples", _EXAMPLES, "distributed/FSDP2/example.py",
        "abe0120a1d349757835071ed7323adc5990885b4", "", _none, chips=(2, 64),
        copied=("distributed/FSDP2",), cwd="distributed/FSDP2",
    ),
    Script(
        "transformers run_clm.py", "run_clm", "d6a6c826", "run_clm.py", "", _CLM, _clm,
        copied=("run_clm.py",), on_cpu="--use_cpu", result=r"train_loss\s+=\s+(\S+)",
    ),
    Script(
        "timm train.py", "pytorch-image-models", "aa4b5850", "train.py",
        "4b9f3082f4e89339e0cce7b030ff084f8886c90d",
        "--data-dir {data} --model resnet18 --num-classes 6 --img-size 64 -b 4 --epochs 1 -j 1"
        " --output out/timm --val-split val", _images,
        copied=("train.py", "timm"), on_trn="--device trn --device-modules trnsim",
        on_cpu="--device cpu", result=r"Train: .*Loss: (\S+) ",
    ),
    Script(
        "cleanrl ppo.py", "cleanrl", "fe8d8a03", "cleanrl/ppo.py",
        "edde76baef51f05a8654160dfb19a4fdb34d14d3",
        "--total-timesteps 512 --num-envs 2 --num-steps 64", _none,
        copied=("cleanrl",), on_cpu="--no-cuda", no_values=_STREAMS,
    ),
    Script(
        "picotron train.py TP=2", "picotron", "59714b1b", "train.py",
        "cbe0fc73a3e61d5cbfdf74fede1edee56f7165da", "--config {data}/tp2.json", _picotron,
        chips=(2,), variables={"PYTHONPATH": "{copy}:{data}/names"},
    ),
    Script(
        "torchtitan llama3_debugmodel", "torchtitan", "b5bcd76c", "torchtitan/train.py",
        "405f5e2718971ddfdc7da3dc2e3b613a7c8e8604", _TITAN, _titan,
        chips=(2, 64), copied=("torchtitan", "tests/assets"), module="torchtitan.train",
    ),
)  # fmt: skip
