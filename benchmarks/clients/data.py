# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The small data that the scripts read, made from a fixed seed: nothing is downloaded."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path

import numpy as np

CLASSES, WORDS, TOKENS = 6, 400, 512


def make_text(lines: int, seed: int) -> str:
    """Lines of words that are drawn from a few hundred, the frequent ones oftener."""
    letters = list("abcdefghijklmnopqrstuvwxyz")
    words = ["".join(w) for w in np.random.default_rng(0).choice(letters, (WORDS, 5))]
    random = np.random.default_rng(seed)
    places = np.minimum(random.zipf(1.3, (lines, 12)) - 1, WORDS - 1)
    return "".join(" ".join(words[place] for place in line) + ".\n" for line in places)


def write_images(folder: Path) -> None:
    """train/ and val/ of six class folders, each of 16 and 4 images of 80 x 80 random pixels."""
    from PIL import Image

    random = np.random.default_rng(0)
    for part, count in (("train", 16), ("val", 4)):
        for label in range(CLASSES):
            place = folder / part / f"class{label}"
            place.mkdir(parents=True)
            for index in range(count):
                pixels = random.integers(0, 256, (80, 80, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{index}.png")


def write_digits(folder: Path) -> None:
    """The four files of MNIST as torchvision reads them: 160 and 64 random digits."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for part, count in (("train", 160), ("t10k", 64)):
        pixels = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = random.integers(0, 10, count, dtype=np.uint8)
        images = struct.pack(">4i", 2051, count, 28, 28) + pixels.tobytes()
        (folder / f"{part}-images-idx3-ubyte").write_bytes(images)
        names = struct.pack(">2i", 2049, count) + labels.tobytes()
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(names)


def write_characters(folder: Path) -> None:
    """train.bin, val.bin and meta.pkl: text as the places of its characters in 65."""
    alphabet = "".join(map(chr, range(32, 96))) + "\n"
    for name, lines in (("train", 2000), ("val", 200)):
        text = make_text(lines, len(name)).upper()
        codes = np.array([alphabet.index(each) for each in text], dtype=np.uint16)
        codes.tofile(folder / f"{name}.bin")
    places = {each: place for place, each in enumerate(alphabet)}
    meta = {"vocab_size": 65, "stoi": places, "itos": dict(enumerate(alphabet))}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))


def write_texts(folder: Path, suffix: str = ".txt") -> None:
    """train, valid and test, of 600, 60 and 60 lines."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (part, lines) in enumerate((("train", 600), ("valid", 60), ("test", 60))):
        (folder / f"{part}{suffix}").write_text(make_text(lines, seed))


def write_samples(file: Path, count: int) -> None:
    """JSON lines, each a "text" of about 250 words."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = (json.dumps({"text": make_text(20, seed)}) for seed in range(count))
    file.write_text("\n".join(rows) + "\n")


def write_llama(folder: Path, *, weights: bool) -> None:
    """A byte-level BPE tokenizer of 512 tokens and the config of a Llama of two layers; with
    `weights` also random ones, as model.safetensors."""
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder.mkdir(parents=True)
    tokenizer = ByteLevelBPETokenizer()
    special = ["<unk>", "<s>", "</s>"]
    tokenizer.train_from_iterator(
        make_text(2000, 0).splitlines(), vocab_size=TOKENS, special_tokens=special
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), unk_token="<unk>", bos_token="<s>",
        eos_token="</s>",
    ).save_pretrained(folder)  # fmt: skip
    settings = folder / "tokenizer_config.json"
    known = json.loads(settings.read_text())
    known["tokenizer_class"] = "PreTrainedTokenizerFast"  # by a name that transformers 4 has too
    settings.write_text(json.dumps(known))
    config = LlamaConfig(
        vocab_size=TOKENS, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
    )  # fmt: skip
    config.save_pretrained(folder)
    if weights:
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
