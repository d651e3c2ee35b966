# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim validate` on small tables: what it predicts, what it refuses, and its document."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from command import trnsim

from trnsim import machine as machines
from trnsim.machine.loader import Decimal
from trnsim.validation.ablation import TERMS

COLUMNS = [
    "id",
    "kind",
    "system",
    "framework",
    "model",
    "chips",
    "nodes",
    "layers",
    "hidden",
    "ffn",
    "heads",
    "kv_heads",
    "head_dim",
    "vocab",
    "experts",
    "topk",
    "seq",
    "global_batch_seqs",
    "global_batch_tokens",
    "mbs",
    "grad_accum",
    "TP",
    "PP",
    "VP",
    "CP",
    "EP",
    "DP",
    "FSDP_ZeRO",
    "precision",
    "recompute",
    "step_time_s",
    "derived_step_time_s",
    "model_tflops_per_chip",
    "op",
    "ranks",
    "msg_bytes",
    "time_us",
    "busbw_GBps",
    "algbw_GBps",
    "M",
    "N",
    "K",
    "tflops",
    "notes",
]


def table(folder: Path, *rows: dict[str, object]) -> Path:
    lines = [",".join(COLUMNS)]
    for row in rows:
        assert set(row) <= set(COLUMNS)
        lines.append(",".join(str(row.get(name, "")) for name in COLUMNS))
    path = folder / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


GATHER = {
    "id": "C1", "kind": "collective", "system": "H200", "op": "all_gather", "ranks": 8,
    "msg_bytes": 1 << 30, "busbw_GBps": 361, "chips": 8,
}  # fmt: skip
PRODUCT = {
    "id": "G1", "kind": "gemm", "system": "H100", "precision": "bf16", "M": 2048, "N": 2048,
    "K": 13312, "tflops": 794.5,
}  # fmt: skip
STEP = {
    "id": "T1", "kind": "train", "system": "H100", "framework": "NeMo 24.09", "model": "Llama3-8B",
    "chips": 8, "layers": 2, "hidden": 1024, "ffn": 2048, "heads": 8, "kv_heads": 8,
    "head_dim": 128, "vocab": 32000, "seq": 2048, "global_batch_seqs": 16, "mbs": 1, "TP": 2,
    "PP": 1, "CP": 1, "DP": 4, "precision": "bf16", "recompute": "none", "step_time_s": 1,
}  # fmt: skip


def document(path: Path, captures: Path) -> dict:
    done = trnsim("validate", str(path), "--json", "--processes", "1", "--captures", str(captures))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_rows_of_three_kinds(tmp_path):
    said = document(table(tmp_path, GATHER, PRODUCT, STEP), tmp_path / "captures")
    gather, product, step = said["rows"]
    assert (gather["quantity"], gather["unit"]) == ("busbw", "GB/s")
    assert abs(gather["error"]) < 0.1
    assert gather["low"] < gather["predicted"] < gather["high"]
    assert abs(product["error"]) < 0.02
    assert step["predicted"] > 0
    assert step["error"] == pytest.approx(step["predicted"] - 1)
    assert (step["class"], step["stack"]) == ("gpu_dense_bf16", "nemo-26.04")
    assert said["summary"]["overall"]["n"] == 3
    assert set(said["summary"]["by_kind"]) == {"collective", "gemm", "train"}
    assert len(list((tmp_path / "captures").glob("*.trnsim"))) == 1
    assert document(tmp_path / "table.csv", tmp_path / "captures") == said


def test_twice_the_layers_take_longer(tmp_path):
    deeper = STEP | {"id": "T2", "layers": 4}
    said = document(table(tmp_path, STEP, deeper), tmp_path / "captures")
    shallow, deep = (row["predicted"] for row in said["rows"])
    assert 1.2 * shallow < deep < 2 * shallow


def test_rows_that_cannot_be_built_say_why(tmp_path):
    said = document(
        table(
            tmp_path,
            STEP | {"id": "A", "TP": 3},
            STEP | {"id": "B", "system": "Cerebras"},
            STEP | {"id": "C", "step_time_s": ""},
            GATHER | {"id": "D", "op": "gossip"},
        ),
        tmp_path / "captures",
    )
    assert [row["predicted"] for row in said["rows"]] == [None] * 4
    reasons = [row["skipped"] for row in said["rows"]]
    assert "multiply out" in reasons[0]
    assert "Cerebras" in reasons[1]
    assert reasons[2] == "the row gives nothing that we predict"
    assert "gossip" in reasons[3]
    assert said["summary"]["overall"]["n"] == 0


def test_what_each_term_is_worth(tmp_path):
    """No step is longer without what takes time; what is not in a step changes nothing."""
    pipelined = {"id": "T3", "model": "Llama3-70B", "layers": 8, "TP": 1, "PP": 2, "VP": 2}
    again = pipelined | {"recompute": "full", "DP": 4, "global_batch_seqs": 32}
    path = table(tmp_path, STEP, STEP | {"id": "T2"}, STEP | again)
    ask = ["validate", str(path), "--ablation", "--processes", "1"]
    captures = ["--captures", str(tmp_path / "captures")]
    done = trnsim(*ask, *captures, "--json")
    assert done.returncode == 0, done.stderr
    found = {each["without"]: each["plain"] for each in json.loads(done.stdout)["ablation"]}
    whole = found.pop("")
    assert set(found) == set(TERMS) and all(each["n"] == 2 for each in found.values())  # families
    bias = {term: each["bias"] for term, each in found.items()}
    assert bias.pop("interleaving") != whole["bias"]  # a longer bubble, fewer messages
    assert all(value <= whole["bias"] + 1e-9 for value in bias.values())
    for term in ("attention", "memory traffic", "recomputation", "latencies of collectives"):
        assert bias[term] < whole["bias"] - 1e-4, term
    assert bias["slower products of experts"] == whole["bias"]
    plain = trnsim(*ask, *captures, "--page", str(tmp_path / "page.md"))
    assert plain.stdout.splitlines()[1].startswith("nothing")
    page = (tmp_path / "page.md").read_text()
    assert "`trnsim validate CSV --ablation --page page.md`" in page and "| nothing | 2 |" in page
    refused = trnsim(*ask, "--fit", str(tmp_path / "constants.toml"))
    assert refused.returncode == 2 and "give one of them" in refused.stderr


def test_a_fit_moves_the_chip_to_what_was_published(tmp_path):
    path = table(tmp_path, STEP, STEP | {"id": "T2", "global_batch_seqs": 32, "step_time_s": 1})
    facts = document(path, tmp_path / "captures")["rows"]
    slower = table(
        tmp_path,
        *(
            STEP
            | {"id": row["id"], "global_batch_seqs": batch, "step_time_s": row["predicted"] * 1.1}
            for row, batch in zip(facts, (16, 32), strict=True)
        ),
    )
    found = tmp_path / "constants.toml"
    done = trnsim(
        "validate", str(slower), "--fit", str(found), "--processes", "1", "--captures",
        str(tmp_path / "captures"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    written = found.read_text()
    assert '["H100 SXM"]' in written and '[stack."nemo-26.04"]' in written
    assert "gemm_factor" in done.stdout and "link_factor" in done.stdout
    machine = machines.load(
        "h100", stack="nemo", constants=tomllib.loads(written, parse_float=Decimal)
    )
    factors = {figure.key: figure.value for figure in machine.figures}
    assert 0.5 < float(factors["stack.gemm_factor"]) < 1


def test_what_the_table_has_not_is_refused(tmp_path):
    path = table(tmp_path, GATHER)
    done = trnsim("validate", str(path), "--kind", "train")
    assert done.returncode == 2
    assert done.stderr == "trnsim: the table has no kind 'train': use one of collective\n"
    assert trnsim("validate", str(tmp_path / "none.csv")).returncode == 2
