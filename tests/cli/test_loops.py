# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Training loops of other shapes than forward, backward, step: what `trnsim run` makes of each."""

import json
import textwrap

import pytest
from command import interpreter, trnsim

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F
device = torch.accelerator.current_accelerator()
"""

GAN = """
make, judge = nn.Linear(16, 32).to(device), nn.Linear(32, 1).to(device)
of_make, of_judge = (torch.optim.Adam(m.parameters()) for m in (make, judge))
real = torch.randn(8, 32, device=device)
for step in range(4):
    noise = torch.randn(8, 16, device=device)
    fake = make(noise)
    loss = judge(fake.detach()).mean() - judge(real).mean()
    loss.backward()
    of_judge.step(); of_judge.zero_grad()
    (-judge(fake)).mean().backward()
    of_make.step(); of_make.zero_grad()
"""
REINFORCE = """
policy = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)).to(device)
optimizer = torch.optim.Adam(policy.parameters())
for episode in range(3):
    state, chosen = torch.zeros(1, 4, device=device), []
    for t in range(5):
        logits = policy(state)
        action = torch.distributions.Categorical(logits=logits).sample()
        chosen.append(F.log_softmax(logits, -1)[0, int(action)])
        state = state + 0.1 * int(action)
    (-torch.stack(chosen).sum()).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
ACCUMULATED = """
model = nn.Linear(32, 32).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    for part in range(4):
        (model(torch.ones(8, 32, device=device)).square().mean() / 4).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
INFERENCE = """
model = nn.Linear(32, 32).to(device).eval()
with torch.no_grad():
    for batch in range(4):
        model(torch.ones(8, 32, device=device))
"""

# A model of 36 parameters in two pieces that the loop calls by turns.
PIECES = """
positions, words = nn.Embedding(3, 2).to(device), nn.Embedding(9, 2).to(device)
class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.position_embedding, self.words = positions, words
    def forward(self, tokens):
        return self.position_embedding(torch.arange(3, device=device)) + self.words(tokens)
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 6, device=device))
    def forward(self, rows):
        return (rows @ self.weight).square()
model, head = Positions(), Head()
optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
counter, tokens = nn.Linear(50, 50, device="meta"), torch.zeros(4, 3, dtype=torch.long)
for step in range(3):
    counter(torch.ones(77, 50, device="meta"))
    loss = head(model(tokens.to(device)).flatten(0, 1)).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
DETECTOR = """
class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 1)
    def forward(self, images):
        found = torch.cat([self.layer(each).flatten() for each in images])
        return found[found > 0].mean()
model = Detector().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model([torch.ones(3, 99, width, device=device) for width in (98, 99)]).backward()
    optimizer.step()
"""


def run(folder, script, *arguments, **variables):
    """The JSON document of the script, and what the command did."""
    path = folder / "train.py"
    path.write_text(HEAD + textwrap.dedent(script))
    done = trnsim("run", "--json", *arguments, path, **variables)
    return (json.loads(done.stdout) if done.returncode == 0 else None), done


# FLOPs of products by hand: 2 m n k, and as many again for each gradient.
@pytest.mark.parametrize(
    ("script", "flops"),
    [
        # five states of one row: two layers, the second one's input too
        (REINFORCE, 5 * (2 * 2 * 4 * 32 + 3 * 2 * 32 * 2)),
        (ACCUMULATED, 4 * 2 * 2 * 8 * 32 * 32),
    ],
    ids=["a policy", "accumulated gradients"],
)
def test_a_step_holds_all_that_its_optimizer_waits_for(script, flops, tmp_path):
    document, done = run(tmp_path, script, "--mode", "compute")
    assert document, done.stderr
    assert document["model_flops"] == flops


@pytest.mark.parametrize(
    ("script", "samples", "tokens", "parameters"),
    [(PIECES, 4, 12, 3 * 2 + 9 * 2 + 12), (DETECTOR, 2, None, 16)],
    ids=["pieces beside a copy on meta", "a list of images"],
)
def test_what_a_step_works_on_is_counted(script, samples, tokens, parameters, tmp_path):
    document, done = run(tmp_path, script)
    assert done.returncode == 0, done.stderr
    assert document["samples_per_s"] * document["step_time_s"] == pytest.approx(samples)
    if tokens is None:
        assert document["tokens_per_s"] is None
    else:
        assert document["tokens_per_s"] * document["step_time_s"] == pytest.approx(tokens)
    assert document["parameters"] == parameters
    said = [each["value"] for each in document["guesses"] if "select everything" in each["value"]]
    assert len(said) == (script is DETECTOR)


def test_the_turns_of_a_gan_are_steps_of_their_own(tmp_path):
    of_make, of_judge = 2 * 8 * 16 * 32, 2 * 8 * 32  # one product of each
    found = set()
    for step in (2, 3):
        document, done = run(tmp_path, GAN, "--step", step)
        assert document, done.stderr
        found.add(document["model_flops"])
    # The judge's: fake and real forward, and their weights. The maker's: judged forward, with
    # gradients of the judge's weight and input, and its own weight.
    assert found == {of_make + 4 * of_judge, of_make + 3 * of_judge}


def test_batches_without_an_optimizer_are_steps_of_inference(tmp_path):
    document, done = run(tmp_path, INFERENCE)
    assert document, done.stderr
    assert document["model_flops"] % (2 * 8 * 32 * 32) == 0 and document["model_flops"] > 0


def test_steps_of_other_lengths_are_listed_with_their_times(tmp_path):
    script = """
    model = nn.Linear(32, 32).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for rows in (8, 8, 16, 32):
        model(torch.ones(rows, 32, device=device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    """
    flops = []
    for step in (1, 2, 3):
        document, done = run(tmp_path, script, "--step", step)
        assert document, done.stderr
        flops.append(document["model_flops"])
    assert [each / flops[0] for each in flops] == [1, 2, 4]


def test_workers_of_a_data_loader_feed_a_step(tmp_path):
    script = """
    from torch.utils.data import DataLoader, TensorDataset
    def main():
        data = TensorDataset(torch.randn(64, 32), torch.randn(64, 1))
        model = nn.Linear(32, 1).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in DataLoader(data, batch_size=16, num_workers=2, pin_memory=True):
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            F.mse_loss(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    if __name__ == "__main__":
        main()
    """
    document, done = run(tmp_path, script)
    assert document, done.stderr
    assert document["model_flops"] == 2 * 2 * 16 * 32


def test_a_worker_of_a_data_loader_makes_no_tensor_of_the_device(tmp_path):
    script = """
    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 8
        def __getitem__(self, index):
            return torch.ones(4, device=device)
    torch.ones(4, device=device) + 1
    for batch in torch.utils.data.DataLoader(Rows(), 4, num_workers=1):
        pass
    """
    _, done = run(tmp_path, script)
    assert done.returncode == 1
    assert "worker process of a DataLoader makes a tensor on trn, whose" in done.stderr


def test_an_exception_of_a_backward_pass_is_the_scripts(tmp_path):
    script = """
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2
        @staticmethod
        def backward(ctx, grad):
            raise ValueError("the script's own")
    x = torch.ones(8, device=device, requires_grad=True)
    try:
        Broken.apply(x).sum().backward()
    finally:
        print("finally", flush=True)
    """
    _, done = run(tmp_path, script)
    assert done.returncode == 1
    assert "finally" in done.stdout + done.stderr
    assert "ValueError: the script's own" in done.stderr


def test_a_backward_at_work_when_the_script_fails_does_not_abort_the_process(tmp_path):
    """It drops tensors, for which it wants a lock that an ending interpreter does not give."""
    script = """
    import sys, threading, time
    class Last:
        def __del__(self, sleep=time.sleep):
            sleep(0.2)
    sys.last = Last()  # gives the thread its time while the interpreter is taken apart
    weight = torch.ones(4, device=device, requires_grad=True)
    def train():
        while True:
            (weight * 2).sum().backward()
    threading.Thread(target=train, daemon=True).start()
    time.sleep(0.2)
    raise ValueError("no more")
    """
    _, done = run(tmp_path, script)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1] == ("trnsim: no report: the script ended with exit code 1")


def test_a_script_ends_as_scripts_do(tmp_path):
    """Its threads are joined, what it registered runs, and all that it printed is there."""
    script = """
    import atexit, sys, threading, time
    atexit.register(lambda: sys.stderr.write("registered\\n"))
    def late():
        time.sleep(0.5)
        sys.stderr.write("joined\\n")
    threading.Thread(target=late).start()
    torch.ones(4, device=device) + 1
    """
    _, done = run(tmp_path, script)
    assert done.returncode == 0
    assert done.stderr.splitlines()[-2:] == ["joined", "registered"]


def test_files_that_nobody_closes_are_written(tmp_path):
    (tmp_path / "logs.py").write_text("file = open('of_module', 'w')\n")
    script = """
    import logs
    own = open("own", "wb")
    logs.file.write("text")
    own.write(b"bytes")
    torch.ones(4, device=device) + 1
    """
    _, done = run(tmp_path, script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "of_module").read_text() == "text"
    assert (tmp_path / "own").read_bytes() == b"bytes"


def test_a_process_that_the_script_forks_gives_no_report(tmp_path):
    script = """
    import os, sys
    torch.ones(4, device=device) + 1
    child = os.fork()
    if child == 0:
        sys.exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    """
    _, done = run(tmp_path, script)  # one document
    assert done.returncode == 0 and "trnsim" not in done.stderr, done.stderr


def test_a_script_that_closes_stdout_leaves_its_files(tmp_path):
    (tmp_path / "train.py").write_text(
        HEAD + "import sys\ntorch.ones(4, device=device) + 1\nsys.stdout.close()\n"
    )
    done = trnsim("run", "--out", tmp_path / "out", tmp_path / "train.py")
    assert done.returncode == 2
    assert done.stderr.startswith("trnsim: the output cannot be written: stdout is closed")
    assert (tmp_path / "out" / "train.trnsim").is_file()


def test_nothing_heavy_is_imported_with_torch():
    """What an installed trnsim loads where torch is imported is the device and its names."""
    code = (
        "import sys, torch; before = set(sys.modules); import trnsim; trnsim._autoload();"
        "own = ('trnsim', 'torch.trn');"
        "new = {name for name in set(sys.modules) - before if not name.startswith(own)};"
        "print(sorted(n for n in new if n.split('.')[0] not in sys.stdlib_module_names))"
    )
    done = interpreter("-c", code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]", done.stdout
