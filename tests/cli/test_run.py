# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim run`: the script is its own, and the report follows it."""

import json
import textwrap

import pytest
from command import python, trnsim

from trnsim.workload import load_run

TRAIN = """
    import os, sys
    import torch
    device = torch.accelerator.current_accelerator()
    print("arguments", sys.argv[1:], "device", device.type)
    model = torch.nn.Linear(64, 64).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        loss = model(torch.ones(8, 64, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print("step", step, flush=True)
"""


def write(folder, text, name="train.py"):
    """A script of these lines."""
    (folder / name).write_text(textwrap.dedent(text))
    return folder / name


def test_the_script_keeps_its_arguments_and_its_prints(tmp_path):
    done = trnsim("run", write(tmp_path, TRAIN), "--help", "--chips", "9", "--", "-x")
    assert done.returncode == 0, done.stderr
    assert "arguments ['--help', '--chips', '9', '--', '-x'] device trn" in done.stdout
    assert done.stdout.index("step 3") < done.stdout.index("step time")


def test_files_called_like_libraries_are_the_scripts_alone(tmp_path):
    """As under Python: those beside the script are its own, those where it is started are not."""
    beside = tmp_path / "scripts"
    beside.mkdir()
    for name in ("rich", "typer", "pyarrow"):
        (beside / f"{name}.py").write_text(f"mine = 'my {name}'\n")
    for name in ("cuda", "types", "rich", "pyarrow", "torch"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not beside the script')\n")
    script = write(
        beside,
        TRAIN
        + """
    import rich, typer, pyarrow
    print(rich.mine, typer.mine, pyarrow.mine)
    assert sys.path[0] == os.path.dirname(os.path.abspath(__file__)) and os.getcwd() not in sys.path
    """,
    )
    code = f"import sys; sys.argv[1:] = ['run', '--out', 'out', {str(script)!r}]; sys.path.pop(0)\n"
    done = python(code + "from trnsim.cli import main; main()", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "my rich my typer my pyarrow" in done.stdout and "step time" in done.stdout
    assert (tmp_path / "out" / "train.trnsim").is_file()
    (tmp_path / "types.py").unlink()  # which `-m` itself trips over
    done = trnsim("run", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "my rich my typer my pyarrow" in done.stdout and "step time" in done.stdout


def test_a_module_runs_by_its_name_with_its_arguments(tmp_path):
    (tmp_path / "package").mkdir()
    write(tmp_path / "package", TRAIN, "training.py")
    done = trnsim("run", "--out", "out", "-m", "package.training", "--lr", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "arguments ['--lr', '3']" in done.stdout
    manifest = load_run(tmp_path / "out" / "training.trnsim").manifest
    assert manifest["command"] == ["-m", "package.training", "--lr", "3"]


def test_json_is_alone_on_stdout_whatever_prints(tmp_path):
    noisy = TRAIN + textwrap.dedent("""
    os.write(1, b"from C\\n")
    import atexit, subprocess
    subprocess.run(["echo", "from a child"])
    atexit.register(print, "at exit")
    """).replace("\n", "\n    ")
    done = trnsim("run", "--json", write(tmp_path, noisy))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["step_time_s"] > 0 and document["chips"] == 1
    for line in ("step 3", "from C", "from a child", "at exit"):
        assert line in done.stderr


def test_an_exception_has_the_scripts_traceback_and_not_ours(tmp_path):
    script = write(tmp_path, TRAIN + "\n    raise ValueError('mine')\n")
    done = trnsim("run", "--out", tmp_path / "out", script)
    assert done.returncode == 1
    traceback = done.stderr[done.stderr.index("Traceback") :]
    *_, own, way_on, ours = traceback.rstrip().splitlines()
    assert own == "ValueError: mine"
    assert way_on.startswith("trnsim: it had done whole steps before: --stop-after-step ")
    assert ours == "trnsim: no report: the script ended with exit code 1"
    traceback = traceback.removesuffix(f"{way_on}\n{ours}\n")
    assert str(script) in traceback and "trnsim/" not in traceback and "runpy" not in traceback
    assert not (tmp_path / "out").exists()


def test_a_script_that_fails_over_unknown_values_is_told_so(tmp_path):
    text = """
    import torch
    x = torch.randn(300, 300, device="trn")
    assert (x.abs() < 100).all()
    """
    done = trnsim("run", write(tmp_path, text))
    assert done.returncode == 1
    *_, own, ours, _ = done.stderr.rstrip().splitlines()
    assert own == "AssertionError"
    assert ours.startswith("trnsim: the script had read 1 values") and "--mode compute" in ours
    assert trnsim("run", "--mode", "compute", write(tmp_path, text)).returncode == 0


def test_the_exit_code_is_the_scripts(tmp_path):
    for code, text in ((0, "0"), (7, "7"), (1, "'a message'")):
        done = trnsim("run", write(tmp_path, TRAIN + f"\n    sys.exit({text})\n"))
        assert done.returncode == code, done.stderr
        assert ("step time" in done.stdout) == (code == 0)
        no_report = f"trnsim: no report: the script ended with exit code {code}\n"
        assert done.stderr.endswith(no_report) == (code != 0)


def test_an_interrupt_is_one_line_and_leaves_nothing(tmp_path):
    script = write(
        tmp_path,
        TRAIN
        + """
    import signal
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    signal.raise_signal(signal.SIGINT)
""",
    )
    done = trnsim("run", "--out", tmp_path / "out", script)
    assert done.returncode == 130
    assert done.stderr.strip().splitlines()[-1] == "trnsim: interrupted"
    assert not (tmp_path / "out").exists()


def test_a_script_without_an_op_on_the_device_is_refused_with_the_device(tmp_path):
    done = trnsim("run", write(tmp_path, "import torch\nx = torch.ones(3) + 1\n"))
    assert done.returncode == 2
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("trnsim: ") and "cpu" in line


def test_the_script_ends_after_the_measured_step_only_when_asked(tmp_path):
    script = write(tmp_path, TRAIN + "\n    print('the end')\n")
    for options, steps in (([], 4), (["--stop-after-step"], 2), (["--step", "0"], 4)):
        done = trnsim("run", *options, script)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("step ") >= steps and f"step {steps}\n" not in done.stdout
        assert ("the end" in done.stdout) == (steps == 4)
    done = trnsim("run", "--step", "4", script)
    assert done.returncode == 2 and "4 steps" in done.stderr


MADE_ON_THE_DEVICE = """
    import sys, torch
    model = torch.nn.Linear(512, 512).to("trn")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        for step in range(4):
            x = torch.randn(4096, 512, device="trn")
            model(x.relu()).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    finally:
        saved = (torch.ones(1 << 24, device="trn") + 1).cpu()
"""


def test_a_step_that_ends_the_script_has_its_next_batch_and_nothing_of_the_way_out(tmp_path):
    script = write(tmp_path, MADE_ON_THE_DEVICE)
    whole, stopped, last = (
        json.loads(trnsim("run", "--json", *options, script).stdout)
        for options in ([], ["--stop-after-step"], ["--step", "3"])
    )
    assert stopped["step_time_ps"] == whole["step_time_ps"]
    said = [[g["value"] for g in d["guesses"] if g["name"] == "step"] for d in (whole, stopped)]
    assert said == [[], []]
    assert last["step_time_ps"] != whole["step_time_ps"]
    quiet = write(tmp_path, MADE_ON_THE_DEVICE.replace("saved =", "pass #"))
    last = json.loads(trnsim("run", "--json", "--step", "3", quiet).stdout)
    [value] = [g["value"] for g in last["guesses"] if g["name"] == "step"]
    assert value.startswith("last step: it lacks 2 of the ops")


def test_out_leaves_a_run_file_that_projects_to_the_same(tmp_path):
    script, out = write(tmp_path, TRAIN), tmp_path / "deep" / "out"
    first = trnsim("run", "--json", "--out", out, "--set", "chip.hbm.bandwidth=1TB/s", script)
    assert first.returncode == 0, first.stderr
    assert (out / "train.trnsim").is_file() and (out / "trace.pftrace").is_file()
    again = trnsim("project", out / "train.trnsim", "--json")
    assert again.returncode == 0, again.stderr
    a, b = json.loads(first.stdout), json.loads(again.stdout)
    for key in ("step_time_s", "timeline_hash", "workload_hash", "machine_hash", "chips"):
        assert a[key] == b[key], key
    other = trnsim("project", out / "train.trnsim", "--machine", "h100", "--json")
    assert other.returncode == 0, other.stderr
    assert json.loads(other.stdout)["machine"] == "h100"
    assert not json.loads(other.stdout)["overrides"]


def test_faults_are_reported_and_kept_in_the_run_file(tmp_path):
    script, out = write(tmp_path, TRAIN), tmp_path / "out"
    done = trnsim("run", "--slow-chip", "0=1000", "--out", out, "--json", script)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["faults"]["what"] == ["engines of chip 0 take 1000 times as long"]
    assert document["faults"]["step_time_s_without"] < document["step_time_s"]
    again = json.loads(trnsim("project", "--json", out / "train.trnsim").stdout)
    assert again["faults"] == document["faults"]
    anew = json.loads(trnsim("project", "--machine", "trn2", "--json", out / "train.trnsim").stdout)
    assert anew["faults"] is None
    assert anew["step_time_s"] == document["faults"]["step_time_s_without"]
    wrong = trnsim("project", "--fault", "x+ 0>1", out / "train.trnsim")
    assert wrong.returncode == 2 and len(wrong.stderr.strip().splitlines()) == 1


def test_collectives_in_steps_are_kept_in_the_run_file(tmp_path):
    script, out = write(tmp_path, TRAIN), tmp_path / "out"
    done = trnsim("run", "--collectives", "step", "--out", out, "--json", script)
    assert done.returncode == 0, done.stderr
    assert load_run(out / "train.trnsim").manifest["options"]["collectives"] == "step"
    again = trnsim("project", "--out", tmp_path / "again", "--json", out / "train.trnsim")
    assert json.loads(again.stdout) == json.loads(done.stdout)
    kept = load_run(tmp_path / "again" / "train.trnsim").manifest
    assert kept["options"]["collectives"] == "step"
    for verb, file in (("run", script), ("project", out / "train.trnsim")):
        wrong = trnsim(verb, "--collectives", "both", file)
        assert wrong.returncode == 2 and not wrong.stdout
        assert wrong.stderr == "trnsim: there are no collectives 'both': use fluid or step\n"


def test_what_project_is_not_told_is_as_in_the_run(tmp_path):
    script, out = write(tmp_path, TRAIN), tmp_path / "out"
    options = ["--step", 0, "--tokens-per-step", 1000, "--chips", 2, "--ranks-per-chip", 4]
    first = trnsim("run", "--json", *options, "--out", out, script, "--lr", "3")
    again = trnsim("project", out / "train.trnsim", "--json", "--out", tmp_path / "again")
    assert first.returncode == again.returncode == 0, first.stderr + again.stderr
    assert json.loads(first.stdout) == json.loads(again.stdout)
    assert json.loads(first.stdout)["tokens_per_s"] is not None
    files = [load_run(folder / "train.trnsim") for folder in (out, tmp_path / "again")]
    assert files[0].manifest == files[1].manifest
    assert files[0].manifest["command"] == [str(script), "--lr", "3"]
    import trnsim as package

    here = package.project(out / "train.trnsim").to_dict()
    assert here == json.loads(trnsim("project", out / "train.trnsim", "--json").stdout)
    told = trnsim("project", out / "train.trnsim", "--json", "--step", 1, "--tokens-per-step", 1)
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["timeline_hash"] != json.loads(first.stdout)["timeline_hash"]


def test_a_machine_file_is_found_from_elsewhere_and_refused_once_it_changed(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text('extends = "trn2"\n')
    # the script leaves the folder that the paths of the command are relative to
    script = write(tmp_path, TRAIN + "\n    os.chdir('/')\n")
    done = trnsim("run", "--machine", "mine.toml", "--out", "out", script.name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "out" / "train.trnsim"
    assert trnsim("project", run, cwd="/").returncode == 0
    figure = 'value = 1, unit = "TB/s", source = "a test", confidence = "guessed"'
    mine.write_text(f'extends = "trn2"\nchip.hbm.bandwidth = {{ {figure} }}\n')
    done = trnsim("project", run)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == (
        f"trnsim: machine '{mine}' is not what the run was on: its figures changed; name the "
        "machine (--machine) to project on it as it is now\n"
    )
    assert trnsim("project", run, "--machine", mine).returncode == 0


def test_phantom_and_compute_ask_the_device_for_the_same(tmp_path):
    script = write(tmp_path, TRAIN)
    for mode in ("phantom", "compute"):
        done = trnsim("run", "--mode", mode, "--out", tmp_path / mode, script)
        assert done.returncode == 0, done.stderr
    runs = [tmp_path / mode / "train.trnsim" for mode in ("phantom", "compute")]
    done = trnsim("diff", *runs)
    assert done.returncode == 0, done.stdout


def test_an_undistributed_script_uses_one_of_its_chips(tmp_path):
    script = write(tmp_path, TRAIN)
    done = trnsim("run", "--machine", "trn2-ultra", "--chips", "64", script)
    assert done.returncode == 0, done.stderr
    assert "1 of 64 chips used: the script is not distributed" in done.stdout


VARIED = """
    import torch
    model = torch.nn.Linear(1024, 1024).to("trn")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for rows in {rows}:
        batch = torch.ones(rows, 1024, device="trn")
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def guesses_of(tmp_path, text, *options):
    done = trnsim("run", "--json", *options, write(tmp_path, text))
    assert done.returncode == 0, done.stderr
    return {guess["name"]: guess for guess in json.loads(done.stdout)["guesses"]}


def test_steps_that_differ_in_shape_are_reported_with_how_many_are_faster(tmp_path):
    rows = [64, 8192, 64, 64, 64, 64]  # the batch of a step is made in the step before
    guess = guesses_of(tmp_path, VARIED.format(rows=rows))["steps differ in shape"]
    assert guess["value"].startswith("1 step of the measured shape takes ")
    assert "; 3 steps as --step 2 take " in guess["value"]
    said = "of the 3 other steps {} are faster, {} as fast and {} slower"
    assert guess["effect"].endswith(said.format(3, 0, 0))
    fast = guesses_of(tmp_path, VARIED.format(rows=rows), "--step", "2")["steps differ in shape"]
    assert fast["value"].startswith("3 steps of the measured shape take ")
    assert fast["effect"].endswith(said.format(0, 2, 1))


def test_a_first_step_that_makes_state_says_so(tmp_path):
    text = VARIED.format(rows=[64] * 3).replace("SGD", "AdamW")
    assert "first step" in guesses_of(tmp_path, text, "--step", "0")["step"]["value"]
    assert "step" not in guesses_of(tmp_path, text)


def test_steps_of_one_shape_are_not_reported(tmp_path):
    assert "steps differ in shape" not in guesses_of(tmp_path, VARIED.format(rows=[64] * 5))


def test_steps_without_a_forward_are_counted_in_one(tmp_path):
    text = """
    import torch
    weight = torch.ones(1024, 1024, device="trn", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(3):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    """
    guess = guesses_of(tmp_path, text)["step"]
    assert guess["value"] == "3 steps of one optimizer are in it"


def test_times_are_readable_where_an_encoding_has_no_micro(tmp_path):
    script = write(tmp_path, TRAIN)
    done = trnsim("run", script, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "step time" in done.stdout and "?" not in done.stdout
    assert done.stdout == trnsim("run", script).stdout.replace("µ", "u")


def test_a_full_disk_is_one_line():
    done = python("""
        import os, sys
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
        sys.argv[1:] = ["info", "trn2"]
        from trnsim.cli import main
        main()
    """)
    reason = "the output cannot be written (No space left on device)"
    assert done.returncode == 2
    assert done.stderr == f"trnsim: {reason}: write it to another place\n"


@pytest.mark.parametrize(
    ("mode", "mine", "expected"),
    [
        ("phantom", {}, "passive"),
        ("compute", {}, None),
        ("phantom", {"OMP_WAIT_POLICY": "active"}, "active"),
    ],
)
def test_threads_sleep_where_only_the_simulator_has_them(
    tmp_path, monkeypatch, mode, mine, expected
):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    text = """
        import os, torch
        print("policy:", os.environ.get("OMP_WAIT_POLICY"))
        torch.ones(2, device="trn").sum()
    """
    done = trnsim("run", "--mode", mode, write(tmp_path, text), **mine)
    assert done.returncode == 0, done.stderr
    assert f"policy: {expected}" in done.stdout
