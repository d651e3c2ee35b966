# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Library functions that are replaced at run time, each with the reason.

What other modules serve in their own ways, they install: torch.cuda (cuda/names.py), FlexAttention
(flex.py), torch.cond and while_loop (control_flow.py), Lightning's accelerator (lightning.py),
attention under context parallelism (attention_sharding.py), Gloo and rendezvous within one process
(process_group.py), the job's variables in os.environ (world.py).

Each replacement keeps the function's signature and calls the original. Those of ALWAYS are made
when the device is loaded, those of AFTER_IMPORT when their library is, and both stay; all others
are in force during a capture and are undone after.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from trnsim.capture import (
    compile,
    control_flow,
    flex,
    frameworks,
    groups,
    imports,
    jagged,
    launch,
    lightning,
    pipelining,
    process_group,
    profiler,
    sharded,
)
from trnsim.capture.hooks import Hooks, recorded_frame, recorded_reentrant


class Patch(NamedTuple):
    """One replaced function.

    Attributes:
        module: where its name is looked up.
        name: the function, or "Class.method".
        make: from the original to its replacement.
        reason: why there is no other way.
        versions: of the library, for which it was checked.
    """

    module: str
    name: str
    make: Callable[[Any], Any]
    reason: str
    versions: str = "torch 2.14"


_INIT = "no hook exists before the rendezvous, which would wait for ranks that never start"

_LAUNCH = "processes that a script starts are other ranks; only the captured one runs, in process"

_OBJECTS = "torch reads a size on the host for each rank: seconds for 65,536 ranks that are alike"

_CHUNKS = "FSDP2 makes a tensor a rank twice for each parameter: minutes for 65,536 ranks"

ALWAYS = (
    Patch(
        "torch.autograd.profiler",
        "profile.__init__",
        profiler.with_device_time,
        "it asks for device activities of Kineto, which only a tracer of the vendor gives",
    ),
    Patch(
        "torch",
        "_TorchCompileInductorWrapper.__call__",
        compile.compiled_on_device,
        "torch.compile's default compiler writes code for devices that it knows; scripts name none",
    ),
    Patch(
        "torch.distributed.distributed_c10d",
        "init_process_group",
        process_group.init_process_group_in_one_process,
        _INIT,
    ),
    Patch(
        "torch.distributed",
        "init_process_group",
        process_group.init_process_group_in_one_process,
        _INIT,
    ),
    Patch(
        "torch.distributed",
        "_verify_params_across_processes",
        process_group.verify_params_of_identical_ranks,
        "DDP gathers a tensor a rank and reads each: seconds for 65,536 ranks that are alike",
    ),
    Patch(
        "torch.distributed.distributed_c10d",
        "_new_group_with_tag",
        groups.only_own_group,
        "a mesh of 8,192 x 8 makes 8,200 groups, of which this rank is in two",
    ),
    Patch(
        "torch.distributed.device_mesh",
        "DeviceMesh.__init__",
        groups.named_by_mesh,
        "the group of a dimension over the whole world does not have its name",
    ),
    Patch(
        "torch.distributed.device_mesh",
        "DeviceMesh._setup_world_group_and_device",
        groups.chooses_device,
        "a device that is initialized is left alone, and no script initializes ours",
    ),
    Patch(
        "torch.distributed.device_mesh",
        "DeviceMesh.__eq__",
        groups.compared_by_hash,
        "DTensor compares meshes some 15,000 times in a step, each time all 16,384 ranks",
    ),
    Patch(
        "torch.distributed.distributed_c10d",
        "all_gather_object",
        groups.gathered_once,
        _OBJECTS,
    ),
    Patch("torch.distributed", "all_gather_object", groups.gathered_once, _OBJECTS),
    Patch(
        "torch.distributed.distributed_c10d",
        "gather_object",
        groups.gathered_at_root_once,
        _OBJECTS,
    ),
    Patch("torch.distributed", "gather_object", groups.gathered_at_root_once, _OBJECTS),
)

_RATES = "it asks Triton's driver, which only a GPU has; both order what streams wait for"

_PIPELINE = "a stage asks its neighbours for shapes, and they run later, in processes of their own"

_LIGHTNING = "it chooses among accelerators that it knows, and not among those that register"

# Made once their module is imported, and kept; nothing is imported for them. Where a version has no
# such name, it is left as it is.
AFTER_IMPORT = (
    Patch(
        "torch.distributed.pipelining.stage",
        "PipelineStage._warmup_backward_result",
        pipelining.inferred_shapes,
        _PIPELINE,
        "torch 2.14",
    ),
    Patch(
        "torch.distributed.pipelining.stage",
        "PipelineStage._send_meta",
        pipelining.kept_shapes,
        _PIPELINE,
        "torch 2.14",
    ),
    Patch(
        "torch.distributed.pipelining.stage",
        "PipelineStage._recv_meta",
        pipelining.known_shapes,
        _PIPELINE,
        "torch 2.14",
    ),
    Patch(
        "torch.distributed.fsdp._fully_shard._fsdp_common",
        "_chunk_with_empty",
        sharded.chunked_on_demand,
        _CHUNKS,
    ),
    Patch(
        "torch.distributed.fsdp._fully_shard._fsdp_param",
        "_chunk_with_empty",
        sharded.chunked_on_demand,
        _CHUNKS,
    ),
    Patch(
        "torch.distributed.fsdp._fully_shard._fsdp_param",
        "FSDPParam.alloc_all_gather_outputs",
        sharded.told_gathered,
        "nothing else says that these tensors hold gathered parameters, not activations",
    ),
    Patch(
        "torch.distributed.fsdp._fully_shard._fsdp_param",
        "FSDPParam.to_accumulated_grad_if_needed",
        sharded.told_accumulated,
        "nothing else says that these tensors are gradients: no optimizer reads them",
    ),
    Patch(
        "torch.distributed",
        "_register_comm_hook",
        sharded.told_buckets,
        "no message is sent from a bucket whose hook sends something else: nothing says what it is",
    ),
    Patch(
        "torch.distributed.fsdp._fully_shard._fsdp_param",
        "FSDPParam.to_sharded_post_forward",
        sharded.told_resharded,
        "nothing else says that this tensor holds a part of parameters, not activations",
    ),
    Patch(
        "torch.distributed.fsdp._flat_param",
        "FlatParamHandle._alloc_padded_unsharded_flat_param",
        sharded.told_unsharded,
        "nothing else says that this tensor holds gathered parameters, not activations",
    ),
    *(
        Patch(
            "torch.distributed.pipelining.stage",
            f"PipelineStage.{name}",
            pipelining.outside_of_step,
            "nothing else says that a stage runs only to know shapes, and not a micro-batch",
        )
        for name in ("_prepare_forward_infra", "_prepare_backward_infra")
    ),
    Patch(
        "torch.distributed.checkpoint.utils",
        "_DistWrapper.reduce_scatter",
        sharded.reduced_by_this_rank,
        "what rank 0 plans for all ranks is of rank 0's own parts",
    ),
    Patch(
        "torch.distributed.checkpoint.default_planner",
        "_validate_global_plan",
        sharded.complete_with_one_part,
        "a checkpoint is refused that lacks the parts of ranks that do not run",
    ),
    Patch(
        "torch.distributed.checkpoint.default_planner",
        "dedup_save_plans",
        sharded.kept_by_this_rank,
        "parts that all ranks have are left to ranks that do not run",
    ),
    Patch(
        "torch.distributed.checkpoint._async_process_executor",
        "_ProcessBasedAsyncCheckpointExecutor.execute_save",
        sharded.saved_by_a_thread,
        "it waits for the processes of ranks that do not run",
    ),
    Patch(
        "torch.distributed.fsdp._optim_utils",
        "_map_param_key_to_optim_keys",
        sharded.keys_of_all_ranks,
        "an optimizer's state is refused of which no rank that runs has every parameter",
    ),
    Patch(
        "torch.distributed.optim.zero_redundancy_optimizer",
        "ZeroRedundancyOptimizer.consolidate_state_dict",
        sharded.consolidated_of_this_rank,
        "it would unpickle bytes that nobody knows",
    ),
    Patch("torch._inductor.utils", "get_gpu_dram_gbps", compile.estimated_bandwidth, _RATES),
    Patch("torch._inductor.utils", "get_device_tflops", compile.estimated_tflops, _RATES),
    Patch(
        "torch.utils.data._utils.worker",
        "_worker_loop",
        launch.without_device,
        "no hook runs in a worker before the script's own code",
    ),
    Patch(
        "torch.nested._internal.ops",
        "jagged_scaled_dot_product_attention",
        jagged.attended_by_sequence,
        "it chooses kernels of CUDA, or strided nested tensors, which the device has not",
    ),
    Patch(
        "safetensors.torch",
        "load_file",
        frameworks.loaded_by_host,
        "the devices that it takes are a list of names",
        "safetensors 0.8",
    ),
    Patch(
        "torch.nn.attention.flex_attention",
        "_validate_device",
        flex.validate_device,
        "the devices that it takes are a literal set",
    ),
    Patch(
        "accelerate.state",
        "PartialState._prepare_backend",
        frameworks.prepare_backend,
        "it chooses among listed vendors, and else goes without a process group",
        "accelerate 1.16",
    ),
    Patch(
        "accelerate.utils.imports",
        "get_torch_accelerator_backend",
        frameworks.chosen_accelerator,
        "torch names our device before others, and programs that nobody captures would move to it",
        "accelerate 1.16",
    ),
    *(
        Patch(module, f"{connector}.{name}", replacement, _LIGHTNING, "lightning 2.6")
        for module, connector in lightning.connectors()
        for name, replacement in (
            ("_choose_auto_accelerator", lightning.choose_accelerator),
            ("_choose_gpu_accelerator_backend", lightning.choose_accelerator),
            ("_choose_strategy", lightning.choose_strategy),
            ("_check_strategy_and_fallback", lightning.check_strategy),
        )
    ),
    *(
        Patch(
            f"{package}.strategies.ddp",
            f"DDPStrategy.{name}",
            lightning.ddp_device_ids,
            "with device ids it wraps the model on a stream of CUDA",
            "lightning 2.6",
        )
        for packages, name in (
            (lightning.PACKAGES, "determine_ddp_device_ids"),
            (lightning.FABRICS, "_determine_ddp_device_ids"),
        )
        for package in packages
    ),
    *(
        Patch(
            f"{package}.plugins.precision.amp",
            "MixedPrecision.__init__",
            lightning.autocast_device,
            "every device but the CPU is cuda to it, whose autocast does nothing without CUDA",
            "lightning 2.6",
        )
        for package in (*lightning.PACKAGES, *lightning.FABRICS)
    ),
    *(
        Patch(
            module,
            "is_torch_bf16_gpu_available",
            frameworks.bf16_is_there,
            "it asks listed vendors' modules, and TrainingArguments(bf16=True) refuses all others",
            "transformers 5.24",
        )
        for module in (  # by whom its name is imported
            "transformers.utils.import_utils",
            "transformers.utils",
            "transformers.training_args",
        )
    ),
)


OF_OTHER_RANKS = tuple(
    Patch(module, name, make, "it would unpickle bytes that nobody knows")
    for module in ("torch.distributed", "torch.distributed.distributed_c10d")
    for name, make in (
        ("broadcast_object_list", groups.known_broadcast),
        ("scatter_object_list", groups.known_scatter),
        ("recv_object_list", process_group.refused_objects),
    )
)


# torch has it where it was built with TensorPipe.
_RPC = tuple(
    Patch(
        "torch.distributed.rpc",
        "init_rpc",
        process_group.refused_rpc,
        "it would wait for workers that do not run",
    )
    for _ in range(hasattr(torch._C, "_rpc_init"))
)


def during_capture(hooks: Hooks) -> tuple[Patch, ...]:
    """The replacements that tell ``hooks`` what happens, and keep a script in one process."""
    return (
        Patch(
            "torch.nn.modules.module",
            "Module.__call__",
            hooks.recorded_call,
            "global forward hooks get no keyword arguments, and cost eight times as much",
        ),
        Patch(
            "torch.optim.optimizer",
            "Optimizer.add_param_group",
            hooks.recorded_group,
            "a compiled step runs no hook; that it is one is seen by the parameters it changes",
        ),
        Patch(
            "torch.amp.grad_scaler",
            "GradScaler._maybe_opt_step",
            hooks.recorded_skip,
            "a step that is left out after an overflow runs no optimizer hook",
        ),
        Patch(
            "torch.distributed",
            "Reducer._rebuild_buckets",
            hooks.recorded_rebuild,
            "DDP tells nobody in which step it lays its buckets anew",
        ),
        Patch(
            "torch.utils.checkpoint",
            "CheckpointFunction.forward",
            recorded_reentrant,
            "no hook says that a checkpointed function runs again",
        ),
        Patch(
            "torch.utils.checkpoint",
            "_CheckpointFrame.__init__",
            recorded_frame,
            "no hook says that a checkpointed function runs again",
        ),
        *OF_OTHER_RANKS,
        *_RPC,
        Patch("torch.multiprocessing", "spawn", launch.start_in_process, _LAUNCH),
        Patch("torch.multiprocessing.spawn", "spawn", launch.start_in_process, _LAUNCH),
        Patch("torch.multiprocessing", "start_processes", launch.start_in_process, _LAUNCH),
        Patch("torch.multiprocessing.spawn", "start_processes", launch.start_in_process, _LAUNCH),
        Patch(
            "torch.distributed.launcher.api",
            "elastic_launch.__call__",
            launch.launch_in_process,
            _LAUNCH,
        ),
    )


def _owner(patch: Patch) -> tuple[Any, str]:
    # import_module, since torch.multiprocessing.spawn is also the name of a function.
    owner = importlib.import_module(patch.module)
    *path, name = patch.name.split(".")
    for part in path:
        owner = getattr(owner, part)
    return owner, name


def install(patch: Patch) -> Callable[[], None]:
    """Puts the replacement in place; the result undoes it."""
    owner, name = _owner(patch)
    original = vars(owner)[name]
    if isinstance(original, staticmethod):
        setattr(owner, name, staticmethod(patch.make(original.__func__)))
    else:
        setattr(owner, name, patch.make(original))
    return lambda: setattr(owner, name, original)


def install_always() -> None:
    """Makes the replacements that stay; once, when the device is loaded."""
    for patch in ALWAYS:
        _install_once(patch)
    for patch in AFTER_IMPORT:
        imports.after_import(patch.module, lambda _, patch=patch: _install_once(patch))
    imports.after_import("torch._higher_order_ops.flex_attention", flex.serve)
    imports.after_import("torch._higher_order_ops.cond", control_flow.serve_cond)
    imports.after_import("torch._higher_order_ops.while_loop", control_flow.serve_while_loop)
    for package in (*lightning.PACKAGES, *lightning.FABRICS):
        imports.after_import(f"{package}.accelerators", lightning.serve)


def _install_once(patch: Patch) -> None:
    owner, name = _owner(patch)
    if name not in vars(owner):
        return  # another version, which asks otherwise
    if not hasattr(getattr(owner, name), "_trnsim_original"):
        original = getattr(owner, name)
        install(patch)
        getattr(owner, name)._trnsim_original = original


@contextlib.contextmanager
def applied(patches: tuple[Patch, ...]) -> Iterator[None]:
    """Inside, the replacements are in force."""
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.callback(install(patch))
        yield
