# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Every command that the README and the guide show runs, at its smallest size."""

import functools
import json
import re
import shlex
import shutil
import tempfile

import pytest
from command import PRODUCT, ROOT, interpreter, trnsim

GUIDE = ROOT / "trnsim" / "guide"
SMALL_GPT = ["--layers", "2", "--width", "128", "--context", "64", "--batch", "2", "--steps", "3"]
SMALL_RESNET = ["--depth", "18", "--size", "64", "--batch", "2", "--steps", "3"]
EXAMPLES = {
    "train_gpt.py": SMALL_GPT,
    "train_gpt_ddp.py": SMALL_GPT,
    "train_llama_fsdp2.py": [*SMALL_GPT, "--tp", "2"],
    "train_resnet.py": SMALL_RESNET,
}


def run(folder, *command):
    """Runs `trnsim COMMAND` in the folder, which ends well, and returns stdout."""
    done = trnsim(*command, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def document_of(example, mode):
    """What `trnsim run --json` says of the small example on two chips."""
    with tempfile.TemporaryDirectory() as folder:
        printed = run(folder, "run", "--json", "--mode", mode, "--chips", 2,
                      ROOT / "examples" / example, *EXAMPLES[example])  # fmt: skip
    return json.loads(printed)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with the outputs of the small DDP example: a run file, a trace."""
    folder = tmp_path_factory.mktemp("documented")
    script = ROOT / "examples" / "train_gpt_ddp.py"
    run(folder, "run", "--machine", "trn2-ultra", "--chips", 64, "--out", "out", script,
        *SMALL_GPT)  # fmt: skip
    return folder


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("mode", ["phantom", "compute"])
def test_each_example_runs_in_both_modes(example, mode):
    document = document_of(example, mode)
    assert document["step_time_s"] > 0
    assert document["chips_used"] == (2 if "ddp" in example or "fsdp2" in example else 1)


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_gives_one_workload_in_both_modes(example):
    phantom, compute = (document_of(example, mode) for mode in ("phantom", "compute"))
    assert phantom["workload_hash"] == compute["workload_hash"]


@pytest.mark.parametrize("example", ["train_gpt.py", "train_resnet.py"])
def test_each_example_runs_on_the_cpu_too(tmp_path, example):
    script = ROOT / "examples" / example
    done = interpreter(script, "--device", "cpu", *EXAMPLES[example], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "loss" in done.stdout


def test_a_script_that_is_not_distributed_uses_one_chip(tmp_path):
    script = ROOT / "examples" / "train_gpt.py"
    said = run(tmp_path, "run", "--machine", "trn2-ultra", "--chips", 64, script, *SMALL_GPT)
    assert "1 of 64 chips used: the script is not distributed" in said


def test_a_run_file_is_projected_again(runs):
    run_file = "out/train_gpt_ddp.trnsim"
    twice = json.loads(
        run(runs, "project", run_file, "--machine", "trn2-ultra", "--chips", 64, "--json",
            "--set", "chip.hbm.bandwidth=5.8TB/s")
    )  # fmt: skip
    once = json.loads(run(runs, "project", run_file, "--machine", "trn2-ultra", "--json"))
    assert twice["step_time_s"] <= once["step_time_s"]
    assert twice["machine_hash"] != once["machine_hash"]
    assert twice["overrides"] == ["chip.hbm.bandwidth=5.8TB/s"] and not once["overrides"]


# --- the guide -----------------------------------------------------------------------------------

GPT = " ".join(SMALL_GPT)
ONE_LAYOUT = "--pp 1 --cp 1 --zero 1 --micro-batch 1 --intervals 0 --jobs 1"
SHORT = "--sequence 1024 --cp 1 --recompute none"
# What a documented command becomes, piece by piece, so that it takes seconds.
SMALLER = {
    "run --machine": "run --check-ranks 0 --machine",
    "train.py --your-own-arguments": f"train.py {GPT}",
    "-m your.package.train": f"-m train {GPT}",
    "trn2-ultra,h100:nemo,tpu-v6e:maxtext --chips 64":
        "trn2-ultra,h100:nemo --chips 3 --check-ranks 0 --json",
    "after.trnsim --fail-over": "after.trnsim --json --fail-over",
    "-- --your-own-arguments": f"-- {GPT}",
    "--chips 64..400000": "--chips 2..4 --check-ranks 0",
    # The option with the share stays as it is documented: the example has to know it.
    "--chips 4..64 --strong 512 --": f"--chips 2..4 --check-ranks 0 --strong 8 -- {GPT}",
    "search llama3-405b --machine rainier --chips 16384":
        f"search llama3-8b --machine rainier --chips 16 --global-batch 16 --tp 8 {ONE_LAYOUT} "
        "--json",
    "--chips 256,512 --sequence 4096 --global-batch 512 --tp 1,2,4,8":
        f"--chips 8 --sequence 1024 --global-batch 8 --tp 2 {ONE_LAYOUT}",
    "compare llama3-8b --machines trn2-ultra,h100:nemo --chips 64 --global-batch 256":
        f"compare llama3-8b --machines trn2-ultra,h100:nemo --chips 8 --global-batch 8 {SHORT}",
    "scale llama3-8b --machine rainier --chips 64..4096":
        f"scale llama3-8b --machine rainier --chips 8..16 {SHORT}",
    "scale mixtral-8x7b --machine h100:nemo --chips 64,128":
        f"scale experts.json --machine h100:nemo --chips 8 {SHORT}",
    "--seeds 1000": "--seeds 5",
    "disturb big.trnsim": "disturb --seeds 3 big.trnsim",
    "report out/": "report --no-figures out/",
    "calibrate out/train.trnsim --measured 1.23s": "calibrate product.trnsim --measured MEASURED",
    "project out/train.trnsim --stack mine.toml": "project product.trnsim --stack mine.toml",
}  # fmt: skip
# What it says, by words of the command as it is documented.
SAYS = {
    "collective all_reduce": "busbw(GB/s)", "collective all_to_all": "busbw(GB/s)",
    "compare before": '"step_time_s"', "--equal dollars": '"chips": 1,',
    "scale train.py --machine rainier": "what stops the scaling", "--seeds 1000": "+p99",
    "scale llama3-8b": "tp8 dp2", "scale mixtral": "times the mean",
    "compare llama3-8b": "layout chosen by search",
    "--changes": "first figures", "--blast-radius": "spine", "kind=srd": "all_reduce",
    "--smaller": "undisturbed: ", "goodput run.trnsim --tokens": "kept work (goodput)",
    "--repair-hours": "waiting for repairs", "report out": "report.html: ",
    "search llama3-405b": '"front"', "--offload-layers": "offload",
    "search config.json": "layouts that the rules allow", "diff": "equal",
    "info trn2-ultra": "source",
    "--toml": "confidence", "validate": "C1", "calibrate": "mine.toml",
}  # fmt: skip
HUGGING_FACE = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1000,
    "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip
EXPERTS = {**HUGGING_FACE, "model_type": "mixtral", "num_local_experts": 8,
           "num_experts_per_tok": 2}  # fmt: skip
MEASURED_ROW = {
    "id": "C1", "kind": "collective", "system": "H200", "framework": "", "model": "",
    "op": "all_gather", "ranks": 8, "step_time_s": "", "time_us": "",
    "msg_bytes": 1 << 30, "busbw_GBps": 361, "chips": 8,
}  # fmt: skip


def commands():
    """(page, command) of every line in a block of commands of the guide."""
    found = []
    for page in sorted(GUIDE.glob("**/*.md")):
        for block in re.findall(r"^```bash\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            found += [(page.stem, line) for line in block.splitlines()]
    assert all(line.startswith("trnsim ") for _, line in found)
    # what another one reads comes first
    order = ["run", "scale", "compare", "search"]
    rank = lambda one: (order + [""]).index(one[1].split()[1]) if one[1].split()[1] in order else 9
    return sorted(found, key=rank)


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with the files that the guide's commands name."""
    folder = tmp_path_factory.mktemp("guide")
    shutil.copy(ROOT / "examples" / "train_gpt_ddp.py", folder / "train.py")
    shutil.copy(ROOT / "examples" / "train_gpt.py", folder)
    (folder / "product.py").write_text(PRODUCT)
    (folder / "config.json").write_text(json.dumps(HUGGING_FACE))
    (folder / "experts.json").write_text(json.dumps(EXPERTS))
    rows = [",".join(MEASURED_ROW), ",".join(map(str, MEASURED_ROW.values()))]
    (folder / "published.csv").write_text("\n".join(rows) + "\n")
    run(folder, "run", "--machine", "h100", "--stack", "megatron", "--out", ".", "product.py")
    for name, machine, chips in (
        ("run", "trn2-ultra", 64), ("big", "rainier", 192), ("smaller", "rainier", 128)
    ):  # fmt: skip
        run(folder, "run", "--machine", machine, "--chips", chips, "--check-ranks", 0, "--out",
            name, "train.py", *SMALL_GPT)  # fmt: skip
        shutil.copy(folder / name / "train.trnsim", folder / f"{name}.trnsim")
    for name in ("before", "after"):
        shutil.copy(folder / "run.trnsim", folder / f"{name}.trnsim")
    return folder


def run_documented(desk, command):
    """Runs it at its smallest size, and looks at what it says."""
    small = command
    for text, smaller in SMALLER.items():
        small = small.replace(text, smaller)
    if "MEASURED" in small:
        step = json.loads(run(desk, "project", "product.trnsim", "--json"))["step_time_s"]
        small = small.replace("MEASURED", f"{1200 * step:.6f}ms")
    words = shlex.split(small)[1:]
    said = run(desk, *words)
    for name, text in SAYS.items():
        if name in command:
            assert text in said
    if "--json" in words and words[0] in ("compare", "search"):
        name = {"compare": "comparison.json", "search": "search.json"}[words[0]]
        (desk / name).write_text(said)


def test_every_command_of_the_guide_runs(desk):
    # one test, since a command reads what others wrote
    pytest.importorskip("matplotlib", reason="the report needs matplotlib: trnsim[report]")
    failed = []
    for page, command in commands():
        try:
            run_documented(desk, command)
        except AssertionError as error:
            failed.append(f"{page}: {command}: {error}")
    assert not failed
    assert len(list((desk / "traces").glob("train.*.et"))) == 64


def test_the_guide_s_pages_are_linked_and_their_links_lead_somewhere():
    pages = [ROOT / "README.md", *GUIDE.glob("**/*.md")]
    linked = set()
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
            linked.add((page.parent / target).resolve())
    assert {page.resolve() for page in GUIDE.glob("**/*.md")} <= linked
    verbs = {page.stem for page in (GUIDE / "verbs").glob("*.md")}
    helped = re.findall(r"^  (\w+)  ", run(ROOT, "--help"), re.MULTILINE)
    elsewhere = {"calibrate": "validate", "diff": "info", "doctor": "info"}
    assert {elsewhere.get(verb, verb) for verb in helped} == verbs
    for path in re.findall(
        r"`((?:csrc|trnsim|tests)/[\w/.]+)`", "".join(p.read_text() for p in pages)
    ):
        assert (ROOT / path).exists(), path


def test_the_guide_s_own_machine_loads(tmp_path):
    text = (GUIDE / "verbs" / "info.md").read_text()
    block = text.split("```toml\n")[1].split("```")[0]
    (tmp_path / "mine.toml").write_text(block)
    assert "vendor's letter" in run(tmp_path, "info", "mine.toml")


def test_the_readme_shows_what_its_command_prints(tmp_path):
    text = (ROOT / "README.md").read_text()
    shown = text.split("```text\n")[1].split("```")[0].splitlines()
    example = ROOT / "examples" / "train_gpt_ddp.py"
    ask = ["run", "--machine", "trn2-ultra", "--chips", 64, "--check-ranks", 0, example]
    printed = run(tmp_path, *ask).splitlines()
    for line in shown:
        assert line in printed
