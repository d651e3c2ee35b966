# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""FSDP, tensor, sequence and context parallelism in one process: that they train, and to what."""

from __future__ import annotations

import copy
import json

import command
import parallel
import pytest
import torch
import torch.distributed as dist
from held import alive, last_step
from jobs import calls_of, job, records_of
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional as F

HALF = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """As all ranks together have it, on the CPU."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().cpu()


def on_cpu(model: nn.Module) -> parallel.Transformer:
    """The same weights as all ranks together have, in an ordinary model."""
    twin = parallel.Transformer()
    twin.load_state_dict({name: whole(value) for name, value in model.state_dict().items()})
    return twin


@pytest.mark.parametrize("size", [8, 64])
@pytest.mark.parametrize("style", ["fsdp2", "hsdp", "tp", "sp", "fsdp2 x sp"])
def test_every_style_trains_in_both_modes(mode, style, size):
    with job(size, mode):
        model = parallel.build(style, size)
        losses = parallel.train(model, 2, foreach=style != "tp")
        assert all(0 < loss < 20 for loss in losses)
        del model


@pytest.mark.parametrize("style", ["fsdp2", "hsdp"])
def test_the_loss_is_that_of_the_model_of_which_all_ranks_hold_the_same_part(style):
    # Ranks hold what rank 0 holds: gathered weights are its part, repeated.
    with job(64, "compute"):
        model = parallel.build(style, 64)
        twin = on_cpu(model)
        loss = parallel.train(model, 1)[0]
        del model
    ids, targets = parallel.batch("cpu")
    expected = F.cross_entropy(twin(ids).flatten(0, 1), targets.flatten()).item()
    assert loss == pytest.approx(expected, rel=1e-4)


def test_matrices_of_equal_parts_give_the_product_with_all_of_them():
    with job(8, "compute"):
        mesh = init_device_mesh("trn", (8,))
        layer = parallel.FeedForward().to("trn")
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        parallelize_module(layer, mesh, plan)
        up, down = whole(layer.up.weight), whole(layer.down.weight)
        x = torch.linspace(-1, 1, 4 * parallel.WIDTH).view(4, -1)
        y = layer(x.to("trn")).detach().cpu()
        del layer
    torch.testing.assert_close(y, F.gelu(x @ up.T) @ down.T, rtol=1e-3, atol=1e-4)


def test_a_gradient_of_fsdp2_is_this_ranks_slice_of_the_average():
    with job(8, "compute"):
        model = parallel.build("fsdp2", 8)
        twin = on_cpu(model)
        ids, targets = parallel.batch()
        F.cross_entropy(model(ids).flatten(0, 1), targets.flatten()).backward()
        grads = {
            name: parameter.grad.to_local().cpu() for name, parameter in model.named_parameters()
        }
        del model
    ids, targets = parallel.batch("cpu")
    F.cross_entropy(twin(ids).flatten(0, 1), targets.flatten()).backward()
    for name, parameter in twin.named_parameters():
        expected = parameter.grad.chunk(8)[0]
        torch.testing.assert_close(grads[name], expected, rtol=1e-3, atol=1e-6)


def test_one_rank_trains_as_the_cpu_does():
    with job(1, "compute"):
        model = parallel.build("fsdp2", 1)
        twin = on_cpu(model)
        losses = parallel.train(model, 3)
        del model
    assert losses == pytest.approx(parallel.train(twin, 3, "cpu"), rel=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"mp_policy": HALF},
        {"reshard_after_forward": False},
        {"reshard_after_forward": 4},
        {"offload_policy": CPUOffloadPolicy(pin_memory=False)},
        {"shard_placement_fn": lambda parameter: Shard(parameter.dim() - 1)},
    ],
    ids=["mixed precision", "no reshard", "reshard to 4", "offload", "last dimension"],
)
def test_the_options_of_fsdp2_train(mode, options):
    with job(64, mode):
        with torch.device("meta"):
            model = parallel.Transformer()
        parallel.divide(model, init_device_mesh("trn", (64,)), **options)
        parallel.fill(model, "cpu" if "offload_policy" in options else "trn")
        assert all(0 < loss < 20 for loss in parallel.train(model, 2))
        del model


def test_fsdp2_in_half_precision_gathers_half_the_bytes_and_reduces_whole_ones():
    with job(64, "phantom") as holder:
        with torch.device("meta"):
            model = parallel.Transformer()
        parallel.divide(model, init_device_mesh("trn", (64,)), mp_policy=HALF)
        parallel.train(parallel.fill(model, "trn"), 1)
        del model
    calls = [call for record, call in calls_of(holder.workload) if record["phase"] == "backward"]
    gathers = [call for call in calls if call["kind"] == "all_gather"]
    reduces = [call for call in calls if call["kind"] == "reduce_scatter"]
    assert {(call["bytes"], call["dtype"]) for call in gathers} == {
        (2 * parallel.OF_LAYER, "bfloat16")
    }
    assert sum(call["bytes"] for call in reduces) == 4 * parallel.OF_ALL
    assert {call["dtype"] for call in reduces} == {"float32"}


@pytest.mark.parametrize("kept", [2, 8])
def test_parts_of_layers_that_wait_for_backward_are_no_activations(kept):
    def kinds(reshard_after_forward):
        with job(64, "phantom") as holder:
            with torch.device("meta"):
                model = parallel.Transformer()
            mesh = init_device_mesh("trn", (64,))
            parallel.divide(model, mesh, reshard_after_forward=reshard_after_forward)
            parallel.fill(model, "trn")
            parallel.train(model, 2)
            del model
        begin, _ = last_step(holder.workload)
        rows = records_of(holder.workload)
        backward = next(i for i in range(begin, len(rows)) if rows[i]["phase"] == "backward")
        return alive(holder.workload, backward)

    plain, parts = kinds(True), kinds(kept)
    assert parts["activation"] == plain["activation"]
    more = parts["communication"] - plain["communication"]
    whole = 4 * (parallel.LAYERS * parallel.OF_LAYER + parallel.OF_ROOT)
    assert more == pytest.approx(whole / kept, rel=0.001)


def test_prefetch_gathers_the_next_layer_before_this_one_computes():
    def gathers_before_attention(prefetch: bool) -> int:
        with job(64, "phantom") as holder:
            model = parallel.build("fsdp2", 64)
            if prefetch:
                model.layers[0].set_modules_to_forward_prefetch([model.layers[1]])
                model.layers[1].set_modules_to_backward_prefetch([model.layers[0]])
            parallel.train(model, 1)
            del model
        rows = records_of(holder.workload)
        first = next(i for i, row in enumerate(rows) if "attention" in row["op"])
        return sum(row["kind"] == "call" for row in rows[:first])

    assert gathers_before_attention(True) == gathers_before_attention(False) + 1


def test_collectives_of_fsdp2_run_beside_compute_and_are_awaited():
    with job(64, "phantom") as holder:
        model = parallel.build("fsdp2", 64)
        parallel.train(model, 1)
        del model
    rows = records_of(holder.workload)
    streams = {row["stream"] for row in rows if row["kind"] == "call"}
    assert len(streams) == 2 and 0 not in streams  # gathers on one, reductions on the other
    issued = sum(row["kind"] == "call" for row in rows)
    assert sum(row["kind"] == "wait" for row in rows) == issued


# FSDP1 keeps its flat parameters alive for ever, so each of these is a process.
FSDP1 = """
import sys
sys.path.insert(0, {helpers!r})
import parallel
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

strategy, original = sys.argv[1], sys.argv[2] == "original"
dist.init_process_group()
torch.manual_seed(0)
options = dict(device_mesh=init_device_mesh("trn", (8, 8))) if "HYBRID" in strategy else dict()
model = FullyShardedDataParallel(
    parallel.Transformer(),
    sharding_strategy=ShardingStrategy[strategy],
    auto_wrap_policy=ModuleWrapPolicy({{parallel.Layer}}),
    use_orig_params=original,
    mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
    device_id=torch.accelerator.current_device_index(),
    **options,
)
losses = parallel.train(model, 3)
model.clip_grad_norm_(1.0)
assert all(0 < loss < 1000 for loss in losses), losses
"""


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"])
@pytest.mark.parametrize("original", ["original", "flat"])
def test_every_strategy_of_fsdp1_trains_and_counts_all_parameters(tmp_path, strategy, original):
    script = tmp_path / "fsdp1.py"
    script.write_text(FSDP1.format(helpers=str(command.ROOT / "tests" / "helpers")))
    mode = "compute" if original == "flat" else "phantom"
    done = command.trnsim(
        "run", "--machine", "trn2-ultra", "--chips", 64, "--mode", mode, "--json", script, strategy,
        original,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["parameters"] == parallel.OF_ALL
    parts = {"NO_SHARD": 1, "HYBRID_SHARD": 8}.get(strategy, 64)
    # In whole blocks of the caching allocator, which does not split what is left of 2 MiB.
    held = 4 * parallel.OF_ALL / parts
    assert held <= document["memory_by_kind"]["parameters"] <= 1.2 * held
    # Samples of all ranks, whatever the groups are called.
    assert document["samples_per_s"] * document["step_time_s"] == pytest.approx(64 * parallel.BATCH)


def test_attention_of_dtensors_is_divided_by_heads_and_batches(mode):
    with job(8, mode):
        mesh = init_device_mesh("trn", (4, 2), mesh_dim_names=("dp", "tp"))
        torch.manual_seed(0)
        part = torch.randn(2, 4, 16, 8).to("trn").requires_grad_()
        q = DTensor.from_local(part, mesh, [Shard(0), Shard(1)])
        y = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        assert y.placements == (Shard(0), Shard(1)) and y.shape == (8, 8, 16, 8)
        y.to_local().sum().backward()
        if mode == "compute":
            local = part.detach().cpu().requires_grad_()
            expected = F.scaled_dot_product_attention(local, local, local, is_causal=True)
            expected.sum().backward()
            torch.testing.assert_close(y.to_local().detach().cpu(), expected.detach())
            torch.testing.assert_close(part.grad.cpu(), local.grad, rtol=1e-4, atol=1e-5)
        del part, q, y


@pytest.mark.parametrize("rotate", ["allgather", "alltoall"])
def test_context_parallelism_passes_keys_and_values_round(mode, rotate):
    from torch.distributed.tensor.experimental._attention import set_rotate_method

    ranks = 4
    set_rotate_method(rotate)
    try:
        with job(ranks, mode) as holder:
            mesh = init_device_mesh("trn", (ranks,), mesh_dim_names=("cp",))
            x = torch.ones(2, 4, 64, 8).to("trn")
            with context_parallel(mesh, buffers=[x], buffer_seq_dims=[2]):
                assert x.shape == (2, 4, 64 // ranks, 8)
                local = x.detach().clone().requires_grad_()
                F.scaled_dot_product_attention(local, local, local, is_causal=True).sum().backward()
            assert x.shape == (2, 4, 64, 8) and local.grad.shape == local.shape
            del x, local
    finally:
        set_rotate_method("allgather")
    part = 2 * 4 * 64 // ranks * 8 * 4  # bytes of a rank's keys
    sent = [(c["kind"], c["bytes"]) for r, c in calls_of(holder.workload)
            if r["phase"] != "backward" and c["bytes"] >= part]  # fmt: skip
    if rotate == "allgather":
        assert sent == [("all_gather", 2 * part * ranks)]
    else:
        assert sent == [("all_to_all", 2 * part)] * (ranks - 1)


def test_context_parallelism_without_balance_says_whose_share_it_takes():
    from torch.distributed.tensor.experimental._context_parallel import _attention

    _attention._cp_options.enable_load_balance = False
    try:
        with job(4, "phantom") as holder:
            mesh = init_device_mesh("trn", (4,), mesh_dim_names=("cp",))
            x = torch.ones(1, 2, 16, 8).to("trn")
            with context_parallel(mesh, buffers=[x], buffer_seq_dims=[2]):
                F.scaled_dot_product_attention(x, x, x, is_causal=True)
            del x
    finally:
        _attention._cp_options.enable_load_balance = True
    assert any("without load balance: rank 0 of 4" in note for note in holder.workload.notes)


class Experts(nn.Module):
    """Tokens go to the ranks of their experts and come back; a rank has `count / ranks` experts."""

    def __init__(self, group, count: int, choices: int = 2) -> None:
        super().__init__()
        self.group, self.count, self.choices = group, count, choices
        self.router = nn.Linear(32, count, bias=False)
        self.weights = nn.Parameter(torch.randn(count // group.size(), 32, 32) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = self.router(x).topk(self.choices, dim=-1).indices.view(-1)
        counts = torch.bincount(chosen, minlength=self.count)
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts, group=self.group)
        ranks = self.group.size()
        sent, got = counts.view(ranks, -1).sum(1).tolist(), arriving.view(ranks, -1).sum(1).tolist()
        order = chosen.argsort(stable=True)
        tokens = x.new_empty(sum(got), 32)
        dist.all_to_all_single(tokens, x[order // self.choices], got, sent, group=self.group)
        of_expert = arriving.view(ranks, -1).sum(0).tolist()
        done = torch.cat(
            [a @ w for a, w in zip(tokens.split(of_expert), self.weights, strict=True)]
        )
        back = x.new_empty(len(order), 32)
        dist.all_to_all_single(back, done, sent, got, group=self.group)
        return torch.zeros_like(x).index_add(0, order // self.choices, back)


def routed(mode: str) -> tuple[list[dict], list[str]]:
    with job(64, mode) as holder:
        mesh = init_device_mesh("trn", (8, 8), mesh_dim_names=("dp", "ep"))
        torch.manual_seed(0)
        layer = Experts(mesh.get_group("ep"), count=16).to("trn")
        with torch.no_grad():
            layer(torch.randn(640, 32).to("trn") + 1)
        del layer
    calls = [call for _, call in calls_of(holder.workload) if call["bytes"] > 1024]
    return calls, holder.workload.notes


def test_unknown_routing_gives_every_expert_an_equal_share():
    calls, notes = routed("phantom")
    assert [call["bytes"] for call in calls] == [640 * 2 * 32 * 4] * 2
    assert any("topk" in note for note in notes)


def test_known_routing_is_sent_as_it_is():
    calls, notes = routed("compute")
    assert calls[0]["bytes"] == 640 * 2 * 32 * 4  # every choice of a token is sent once
    assert not any("topk" in note for note in notes)


def test_sizes_that_phantom_mode_cannot_know_are_refused_with_what_to_do():
    with job(8, "phantom"):
        x = torch.randn(2**15, 8).to("trn")
        sizes = (x.view(8, -1).sum(1).abs() * 10).long().tolist()
        out = torch.empty(sum(sizes), 8, device="trn")
        with pytest.raises(Exception, match="use --mode compute"):
            dist.all_to_all_single(out, x, sizes, sizes)
        del x, out


def test_a_parameter_of_any_shape_is_distributed(mode):
    with job(8, mode):
        mesh = init_device_mesh("trn", (8,))
        for shape in [(16, 3), (10, 3), (3,), (1, 5)]:  # even, uneven, and fewer rows than ranks
            parts = distribute_tensor(torch.ones(shape).to("trn"), mesh, [Shard(0)])
            assert parts.shape == shape
            rows = -(-shape[0] // 8)
            assert parts.to_local().shape == (rows, *shape[1:])
            if mode == "compute":
                assert parts.full_tensor().cpu().tolist() == torch.ones(shape).tolist()
            del parts


def test_two_copies_of_a_divided_model_are_apart(mode):
    with job(8, mode):
        model = parallel.build("fsdp2", 8)
        state = copy.deepcopy({name: value for name, value in model.state_dict().items()})
        assert all(isinstance(value, DTensor) for value in state.values())
        model.load_state_dict(state)
        del model, state


def test_a_job_finds_none_of_an_earlier_jobs_groups_by_the_shape_of_its_mesh():
    def groups_of_calls(other_groups: int) -> list[str]:
        with job(16, "phantom") as holder:
            for first in range(other_groups):
                dist.new_group([first, first + 1])
            model = parallel.build("fsdp2 x sp", 16)
            parallel.train(model, 2)
            del model
        ranks = holder.workload.to_columns()["groups"]["ranks"]
        return [ranks[call["group"]] for _, call in calls_of(holder.workload)]

    groups_of_calls(0)  # DTensor agrees on random states once in a process
    alone = groups_of_calls(0)
    assert groups_of_calls(2) == alone
    assert groups_of_calls(0) == alone


def test_a_mesh_of_four_dimensions_has_its_groups_and_flat_ones():
    with job(64, "phantom") as holder:
        names = ("dp_replicate", "dp_shard", "cp", "tp")
        mesh = init_device_mesh("trn", (2, 4, 2, 4), mesh_dim_names=names)
        flat = mesh["dp_shard", "cp"]._flatten("dp_shard_cp")
        model = nn.Linear(64, 64, device="trn")
        fully_shard(model, mesh=flat)
        model(torch.ones(2, 64, device="trn")).sum().backward()
        assert flat.size() == 8 and mesh["tp"].size() == 4
        del model
    table = holder.workload.to_columns()["groups"]
    ranks = dict(zip(table["name"], table["ranks"], strict=True))
    assert ranks["mesh_tp"] == "0..3"
    assert ranks["mesh_dp_replicate"] == "start 0 axes 32x2"
    assert ranks["mesh_dp_shard_cp"] == "start 0 axes 4x8"


def test_a_distributed_checkpoint_is_saved_and_loaded(tmp_path):
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    with job(64, "compute") as holder:
        model = parallel.build("hsdp", 64)
        optimizer = torch.optim.AdamW(model.parameters())
        ids, targets = parallel.batch()
        F.cross_entropy(model(ids).flatten(0, 1), targets.flatten()).backward()
        optimizer.step()
        states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
        before = {name: whole(value) for name, value in states["model"].items()}
        checkpoint.save(states, checkpoint_id=tmp_path / "saved")
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        checkpoint.load(states, checkpoint_id=tmp_path / "saved")
        beside = checkpoint.async_save(
            {"model": states["model"]},
            checkpoint_id=tmp_path / "beside",
            process_group=dist.new_group(backend="gloo"),  # torch wants one of the CPU
            async_checkpointer_type=checkpoint.state_dict_saver.AsyncCheckpointerType.PROCESS,
        )
        beside.result(timeout=60)
        names = [
            sorted(each.name for each in (tmp_path / at).iterdir()) for at in ("saved", "beside")
        ]
        assert names[0] == names[1]
        set_state_dict(
            model, optimizer, model_state_dict=states["model"],
            optim_state_dict=states["optimizer"],
        )  # fmt: skip
        for name, value in model.state_dict().items():
            assert torch.equal(whole(value), before[name]), name
        del model, optimizer, states, value, parameter
    assert any("captured rank's parts alone" in note for note in holder.workload.notes)


@pytest.mark.parametrize("size", [1, 64, 65_536])
def test_objects_of_all_ranks_are_copies_of_this_ranks(size):
    with job(size, "phantom"):
        gathered = [None] * size
        dist.all_gather_object(gathered, {"rank": dist.get_rank(), "long": "x" * 500})
        assert gathered[0] == gathered[-1] == {"rank": 0, "long": "x" * 500}
        assert size == 1 or gathered[0] is not gathered[-1]
        at_root = [None] * size
        dist.gather_object(("a", 1), at_root, dst=0)
        assert set(at_root) == {("a", 1)}


def test_groups_of_other_ranks_are_none_and_wrong_ones_are_refused():
    with job(64, "phantom"):
        assert dist.new_group([1, 2, 3]) is dist.GroupMember.NON_GROUP_MEMBER
        assert dist.new_group([0, 2]).size() == 2
        with pytest.raises(ValueError, match="out of range"):
            dist.new_group([1, 64])
        with pytest.raises(ValueError, match="duplicate"):
            dist.new_group([1, 1])


FSDP_SCRIPT = """
import os, sys, torch
from torch import nn
from torch.distributed import device_mesh, fsdp
index = int(os.environ["LOCAL_RANK"])
device = torch.device("trn", index)
torch.distributed.init_process_group(device_id=device)
if "chosen" in sys.argv:
    kept = torch.ones(1, device="trn:0")  # the device is in use: a mesh leaves it alone
with torch.device("meta"):
    model = nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 256))
fsdp.fully_shard(model)
assert torch.accelerator.current_device_index() == (0 if "chosen" in sys.argv else index)
model.to_empty(device=torch.accelerator.current_accelerator())
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    model(torch.randn(4, 256).to(torch.trn.current_device())).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("arguments", [[], ["chosen"]])
def test_a_mesh_chooses_the_device_of_the_rank_where_nobody_has(tmp_path, arguments):
    (tmp_path / "train.py").write_text(FSDP_SCRIPT)
    done = command.trnsim("run", "--json", "--chips", "2", "train.py", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [role["which_ranks"] for role in document["roles"]] == ["0..1"]
    assert not [guess for guess in document["guesses"] if "several devices" in guess["value"]]


@pytest.mark.parametrize("rank", [0, 3])
def test_fsdp1_gathers_the_optimizers_state_of_every_parameter(mode, rank):
    with job(4, mode, rank=rank):
        model = FullyShardedDataParallel(
            nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)),
            device_id=torch.device("trn"),
            use_orig_params=True,
        )
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(2, 8, device="trn")).sum().backward()
        optimizer.step()
        held = [p for p in model.parameters() if p.numel() > 0]
        assert len(held) < 4  # or this would be no test
        states = FullyShardedDataParallel.optim_state_dict(model, optimizer)["state"]
        shapes = {name: state["exp_avg"].shape for name, state in states.items()}
        assert shapes == {
            f"{i}.{n}": s for i in "01" for n, s in (("weight", (8, 8)), ("bias", (8,)))
        }
        del model, optimizer, held, states
