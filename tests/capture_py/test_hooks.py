# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What the recording learns from Python: modules, phases, steps, optimizers."""

from __future__ import annotations

import contextlib
import gc

import pytest
import torch
from jobs import records_of
from torch import nn
from torch.profiler import profile
from torch.utils.checkpoint import checkpoint

import trnsim
import trnsim.device
from trnsim import _core, _torch
from trnsim.capture.hooks import StopCapture
from trnsim.capture.script import start_capture, stop_capture
from trnsim.capture.world import World
from trnsim.errors import CaptureError

_MARKERS = _core.workload_enum_names()["markers.kind"]


class Held:
    workload = None


@contextlib.contextmanager
def capture(mode="compute", **options):
    gc.collect()
    start_capture(World(), mode, **options)
    held = Held()
    try:
        yield held
    finally:
        held.workload = stop_capture()
        gc.collect()


def markers(workload):
    return [
        (_MARKERS[record["payload"]], record["value"])
        for record in records_of(workload)
        if record["kind"] == "marker"
    ]


class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Stack(nn.Module):
    def __init__(self, reentrant=None):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.reentrant = reentrant

    def forward(self, x):
        for block in self.blocks:
            if self.reentrant is None:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


def step(model, optimizer, loss=torch.mean, rows=4):
    optimizer.zero_grad()
    loss(model(torch.ones(rows, 8).to("trn").requires_grad_())).backward()
    optimizer.step()


def test_ops_carry_the_path_of_their_module_forward_and_backward():
    with capture() as held:
        model = Stack().to("trn")
        step(model, torch.optim.SGD(model.parameters(), 0.1))
        del model
    paths = {(r["phase"], r["path"]) for r in records_of(held.workload) if r["kind"] == "op"}
    for phase in ("forward", "backward"):
        assert (phase, "blocks.0.mlp.0") in paths
        assert (phase, "blocks.1.mlp.1") in paths
        assert (phase, "blocks.1.norm") in paths


def test_a_second_model_has_its_class_in_front_and_losses_do_not_take_the_first_place():
    with capture() as held:
        loss, first, second = nn.MSELoss(), nn.Linear(8, 8).to("trn"), Stack().to("trn")
        x = torch.ones(4, 8).to("trn")
        loss(first(x), x)
        second(x)
        del first, second, x
    paths = {record["path"] for record in records_of(held.workload)}
    assert {"", "MSELoss", "Stack.blocks.0.mlp.0"} <= paths


def test_a_module_made_on_the_fly_is_named_below_its_caller():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x):
            return nn.Softmax(-1)(self.inner(x))

    with capture() as held:
        model = nn.Sequential(Odd()).to("trn")
        model(torch.ones(2, 8).to("trn"))
        del model
    assert "0.Softmax" in {record["path"] for record in records_of(held.workload)}


def test_the_profiler_finds_the_modules_of_a_stack():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).to("trn")
    verbose = torch._C._profiler._ExperimentalConfig(verbose=True)
    with capture(), profile(with_stack=True, experimental_config=verbose) as profiled:
        model(torch.ones(2, 8, device="trn"))

    def names_of(events):
        for event in events:
            yield event.name
            yield from names_of(event.children)

    found = set(names_of(profiled.profiler.kineto_results.experimental_event_tree()))
    assert {f"nn.Module: {name}_0" for name in ("Sequential", "Linear", "ReLU")} <= found


def test_a_forward_may_call_its_arguments_as_it_likes():
    class Named(nn.Linear):
        def forward(self, module, paths, thread):
            return super().forward(module) + paths + thread

    x = torch.ones(2, 8, device="trn")
    with capture():
        assert Named(8, 8).to("trn")(module=x, paths=1, thread=2).shape == (2, 8)


@pytest.mark.filterwarnings("error::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_model_is_traced_without_a_word_about_sizes():
    x = torch.ones(2, 8, device="trn")
    with capture():
        traced = torch.jit.trace(nn.Linear(8, 8).to("trn"), x, check_trace=False)
        assert traced(x).shape == (2, 8)
    assert "aten::size" not in str(traced.inlined_graph)


def test_an_exception_in_a_forward_leaves_no_path_behind():
    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError("broken")

    with capture() as held:
        with pytest.raises(ValueError, match="broken"):
            Broken()(torch.ones(1).to("trn"))
        torch.ones(1).to("trn") + 1
    added = [r for r in records_of(held.workload) if r["op"].startswith("aten::add")]
    assert [record["path"] for record in added] == [""]


def test_steps_are_marked_with_their_samples_and_optimizers():
    with capture() as held:
        model = Stack().to("trn")
        optimizer = torch.optim.AdamW(model.parameters())
        for rows in (4, 6):
            step(model, optimizer, rows=rows)
        del model, optimizer
    assert markers(held.workload) == [
        ("forward_begin", 4),
        ("optimizer_begin", 0),
        ("optimizer_end", 0),
        ("forward_begin", 6),
        ("optimizer_begin", 0),
        ("optimizer_end", 0),
    ]
    steps = held.workload.find_steps()
    assert [one.whole for one in steps] == [True, True]
    assert [one.creates_state for one in steps] == [True, False]


def test_evaluation_begins_no_step():
    with capture() as held:
        model = Stack().to("trn")
        with torch.no_grad():
            model(torch.ones(1, 8).to("trn"))
        model.eval()(torch.ones(1, 8).to("trn"))
        del model
    assert markers(held.workload) == []


def test_keyword_arguments_count_as_inputs():
    class ByName(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, *, ids, mask=None):
            return self.inner(ids)

    with capture() as held:
        model = ByName().to("trn")
        model(ids=torch.ones(3, 8).to("trn"))
        del model
    assert markers(held.workload) == [("forward_begin", 3)]


class Wrapped(nn.Module):
    def __init__(self, inner, changed=False):
        super().__init__()
        self.inner, self.changed = inner, changed

    def forward(self, x, mask=None):
        return self.inner(x + 1 if self.changed else x)


def _decoder(batch_first):
    return nn.Transformer(8, 2, 1, 1, 16, batch_first=batch_first)


@pytest.mark.parametrize(
    ("make", "samples"),
    [
        (lambda: nn.LSTM(8, 8), 3),
        (lambda: nn.LSTM(8, 8, batch_first=True), 5),
        (lambda: Wrapped(nn.GRU(8, 8)), 3),
        (lambda: Wrapped(Wrapped(nn.GRU(8, 8))), 3),
        (lambda: Wrapped(nn.GRU(8, 8, batch_first=True)), 5),
        (lambda: Wrapped(nn.Linear(8, 8)), 5),
        (lambda: Wrapped(nn.Sequential(nn.Linear(8, 8), nn.RNN(8, 8))), 5),
        (lambda: Wrapped(nn.RNN(8, 8), changed=True), 5),
        (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 1), 3),
        (lambda: Wrapped(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)), 5),
    ],
)
def test_samples_of_sequence_first_modules_are_their_second_dimension(make, samples):
    with capture() as held:
        model = make().to("trn")
        model(torch.ones(5, 3, 8).to("trn"))
        del model
    counted = [value for name, value in markers(held.workload) if name == "forward_begin"]
    assert [value for value in counted if value >= 0] == [samples]


def test_attention_and_transformers_take_the_second_dimension_unless_batch_first():
    for batch_first, samples in ((False, 3), (True, 5)):
        for make in (
            lambda batch_first: nn.MultiheadAttention(8, 2, batch_first=batch_first),
            _decoder,
        ):
            with capture() as held:
                model = make(batch_first).to("trn")
                x = torch.ones(5, 3, 8).to("trn")
                model(*[x] * (3 if isinstance(model, nn.MultiheadAttention) else 2))
                del model, x
            assert markers(held.workload) == [("forward_begin", samples)]


@pytest.mark.parametrize(("rows", "samples"), [(1, 5), (3, -1)])
def test_samples_under_vmap_are_what_is_mapped_unless_slices_have_rows(rows, samples):
    with capture() as held:
        model = nn.Linear(8, 2).to("trn")
        weights = {name: each.detach() for name, each in model.named_parameters()}

        def loss(weights, x):
            return torch.func.functional_call(model, weights, (x,)).sum()

        x = torch.ones(5, rows, 8).to("trn")
        torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, x)
        del weights, x
    assert markers(held.workload) == [("forward_begin", samples)]


def test_an_optimizer_on_the_cpu_beside_the_device_is_said_to_have_no_time():
    for device, said in (("cpu", True), ("trn", False)):
        with capture() as held:
            model = nn.Linear(8, 2).to("trn")
            kept = nn.Parameter(torch.ones(4, device=device))
            optimizer = torch.optim.SGD([kept])
            model(torch.ones(3, 8).to("trn")).sum().backward()
            kept.grad = torch.ones(4, device=device)
            optimizer.step()
            del model, kept, optimizer
        assert any("steps parameters on the CPU" in one for one in held.workload.notes) == said


def test_masks_and_what_is_broadcast_count_no_samples():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, *inputs):
            return self.inner(torch.ones(1, 8).to("trn"))

    mask, causal = torch.ones(7, 7, dtype=torch.bool), torch.zeros(1, 1, 7, 7)
    rows, one, positions = torch.ones(3, 8), torch.ones(1, 8), torch.arange(8)
    for inputs, samples in (
        ((mask, rows), 3),
        ((causal, rows), 3),
        ((one, positions), 1),
        ((one, one), 1),
        ((mask,), -1),
        ((), -1),
        ((rows[0],), -1),
        ((positions,), -1),  # tokens of sequences that are packed, or a number each
        ((positions[None],), 1),
    ):
        with capture() as held:
            model = Masked().to("trn")
            model(*(each.to("trn") for each in inputs))
            del model
        assert markers(held.workload) == [("forward_begin", samples)]


def test_ops_of_an_optimizer_are_its_phase_and_its_parameters_are_counted():
    with capture() as held:
        model = nn.Linear(8, 4).to("trn")
        step(model, torch.optim.Adam(model.parameters(), foreach=True))
        del model
    phases = {r["phase"] for r in records_of(held.workload) if "_foreach" in r["op"]}
    assert phases == {"optimizer"}
    assert held.workload.parameter_count == 8 * 4 + 4


def test_parameters_are_those_of_modules_and_optimizers_each_once():
    with capture() as held:
        model = nn.Sequential(nn.Linear(8, 4), nn.LazyLinear(2)).to("trn")
        model[0].bias.requires_grad_(False)
        model(torch.ones(2, 8).to("trn"))
        free = torch.zeros(3, device="trn", requires_grad=True)
        for _ in range(2):
            step(model, torch.optim.SGD([*model[1].parameters(), free], 0.1))
        del model, free
    assert held.workload.parameter_count == (8 * 4 + 4) + (4 * 2 + 2) + 3


def test_an_inference_has_parameters():
    with capture() as held:
        model = nn.Linear(8, 4).to("trn").eval()
        with torch.no_grad():
            model(torch.ones(2, 8).to("trn"))
        del model
    assert held.workload.parameter_count == 8 * 4 + 4


def test_a_step_that_the_scaler_skips_is_marked():
    with capture() as held:
        model = nn.Linear(8, 4).to("trn")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("trn")
        loss = model(torch.full((2, 8), float("inf")).to("trn")).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        del model, optimizer, loss
    assert markers(held.workload) == [("forward_begin", 2), ("optimizer_skipped", 0)]
    assert [one.whole for one in held.workload.find_steps()] == [True]


def test_an_optimizer_whose_only_step_is_skipped_counts_with_its_parameters():
    with capture() as held:
        weight = nn.Parameter(torch.full((5,), float("inf"), device="trn"))
        optimizer = torch.optim.SGD([weight], 0.1)
        scaler = torch.amp.GradScaler("trn")
        scaler.scale((weight * weight).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        del weight, optimizer
    assert markers(held.workload) == [("optimizer_skipped", 0)]
    assert held.workload.parameter_count == 5


def test_a_marker_of_no_kind_is_refused():
    with pytest.raises(CaptureError, match="no marker kind 'forward'"):
        _torch.record_marker("forward", 1)


def test_an_optimizer_that_fails_does_not_leave_its_phase_behind():
    class Failing(torch.optim.SGD):
        fails = True

        def step(self, closure=None):
            if self.fails:
                raise RuntimeError("failed")
            return super().step(closure)

    with capture() as held:
        model = nn.Linear(8, 4).to("trn")
        optimizer = Failing(model.parameters(), 0.1)
        with pytest.raises(RuntimeError, match="failed"):
            step(model, optimizer)
        optimizer.fails = False
        step(model, optimizer)
        torch.ones(1).to("trn") + 1
        del model, optimizer
    records = records_of(held.workload)
    assert records[-1]["phase"] != "optimizer"
    ends = [value for name, value in markers(held.workload) if name == "optimizer_end"]
    assert ends == [0]


def _steps_by_closure(optimizer, keyword: bool) -> int:
    """How often three steps of 16 samples each ran their closure."""
    model = nn.Linear(8, 4).to("trn")
    stepper = optimizer(model.parameters(), lr=0.01)
    rows = torch.ones(16, 8).to("trn")
    runs = []

    def closure():
        stepper.zero_grad()
        loss = model(rows).square().mean()
        loss.backward()
        runs.append(None)
        return loss

    for _ in range(3):
        stepper.step(closure=closure) if keyword else stepper.step(closure)
    return len(runs)


@pytest.mark.parametrize("keyword", [True, False])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.LBFGS])
def test_a_closure_runs_forward_and_backward_inside_of_its_step(optimizer, keyword):
    with capture() as held:
        runs = _steps_by_closure(optimizer, keyword)
    assert runs == 3 if optimizer is torch.optim.SGD else runs > 3
    products = [r["phase"] for r in records_of(held.workload) if r["op"] == "aten::addmm"]
    assert products == ["forward"] * runs
    assert held.workload.whole_step_count == 3
    found = trnsim.project(held.workload, "trn2", advise=False, interval=False)
    assert found.samples_per_s * found.step_time_s == pytest.approx(16)


def test_what_an_optimizer_multiplies_is_no_work_of_the_model():
    with capture("phantom") as held:
        model = nn.Linear(64, 64, bias=False).to("trn")
        stepper = torch.optim.Muon(model.parameters())
        for _ in range(3):
            model(torch.ones(4, 64).to("trn")).sum().backward()
            stepper.step()
            stepper.zero_grad()
        del model, stepper
    found = trnsim.project(held.workload, "trn2", advise=False, interval=False)
    assert found.model_flops == 2 * 2 * 4 * 64 * 64  # forward, and the gradient of the weights


@pytest.mark.parametrize(("shape", "tokens"), [((8,), None), ((8, 5), 40), ((40,), 40)])
def test_a_class_of_each_sample_is_no_token(shape, tokens):
    class Conditioned(nn.Module):
        def __init__(self):
            super().__init__()
            self.classes, self.inner = nn.Embedding(10, 16), nn.Linear(16, 16)

        def forward(self, image, index):
            return self.inner(image).sum() + self.classes(index).sum()

    with capture("phantom") as held:
        model = Conditioned().to("trn")
        stepper = torch.optim.SGD(model.parameters())
        for _ in range(2):
            index = torch.zeros(shape, dtype=torch.long, device="trn")
            model(torch.ones(8, 3, 16).to("trn"), index).backward()
            stepper.step()
        del model, stepper, index
    found = trnsim.project(held.workload, "trn2", advise=False, interval=False)
    assert found.samples_per_s * found.step_time_s == pytest.approx(8)
    counted = found.tokens_per_s and found.tokens_per_s * found.step_time_s
    assert counted == (tokens and pytest.approx(tokens))


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("mode", ["compute", "phantom"])
def test_a_checkpointed_function_that_runs_again_is_recomputation(mode, reentrant):
    with capture(mode) as held:
        model = Stack(reentrant).to("trn")
        step(model, torch.optim.SGD(model.parameters(), 0.1))
        del model
    by_phase = {}
    for record in records_of(held.workload):
        if record["kind"] == "op":
            by_phase.setdefault(record["phase"], []).append(record)
    forward = [(r["op"], r["path"]) for r in by_phase["forward"] if "addmm" in r["op"]]
    again = [(r["op"], r["path"]) for r in by_phase["recomputation"] if "addmm" in r["op"]]
    # Early stopping leaves out what no saved tensor needs: the last product of a block.
    assert set(again) <= set(forward)
    assert len(again) == (4 if reentrant else 2)
    assert not any("native_layer_norm_backward" in r["op"] for r in by_phase["recomputation"])
    assert any("native_layer_norm_backward" in r["op"] for r in by_phase["backward"])
    assert len(held.workload.find_steps()) == 1


def test_storages_of_parameters_buffers_and_inputs_are_known_as_such():
    with capture() as held:
        model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).to("trn")
        step(model, torch.optim.Adam(model.parameters()))
        model(torch.ones(4, 8).to("trn"))
        del model
    kinds = held.workload.to_columns()["storages"]["kind"].tolist()
    names = [_core.workload_enum_names()["storages.kind"][kind] for kind in kinds]
    assert names.count("parameter") == 4
    assert names.count("buffer") == 3
    assert names.count("input") >= 1
    assert names.count("optimizer_state") >= 8


def test_a_capture_can_end_the_script_after_a_step():
    with capture(stop_after_step=2) as held:
        model = Stack().to("trn")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        taken = 0
        with pytest.raises(StopCapture):
            for _ in range(10):
                step(model, optimizer)
                taken += 1
        assert taken == 2
        del model, optimizer
    assert [one.whole for one in held.workload.find_steps()] == [True, True, False]


def test_parameters_that_moved_after_a_call_are_parameters_still():
    with capture() as held:
        model = nn.Linear(8, 4)
        model(torch.ones(2, 8))
        model.to("trn")
        step(model, torch.optim.SGD(model.parameters(), 0.1))
        del model
    tables = held.workload.to_columns()["storages"]
    names = _core.workload_enum_names()["storages.kind"]
    kinds = [names[kind] for kind in tables["kind"]]
    assert kinds.count("parameter") == 2
    assert held.workload.parameter_count == 8 * 4 + 4
