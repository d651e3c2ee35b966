// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/aten/kernel.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <torch/csrc/Exceptions.h>

#include "base/error.h"
#include "capture/aten/native/kernels.h"
#include "capture/aten/results.h"
#include "capture/aten/signature.h"
#include "capture/aten/stack_map.h"
#include "capture/recorder.h"
#include "capture/runtime/block.h"
#include "capture/runtime/device_type.h"
#include "capture/runtime/guard.h"
#include "capture/runtime/hooks.h"

namespace trnsim::capture {
namespace {

thread_local const char* op_of_thread = "";

struct OpScope {
  const char* outer = op_of_thread;
  explicit OpScope(const char* name) { op_of_thread = name; }
  ~OpScope() { op_of_thread = outer; }
};

// Inside, the CPU's default generator stands where the device's does: for ops that draw and take no
// generator, as dropout. Afterwards the device's has moved on and the CPU's has not.
class DefaultGeneratorScope {
 public:
  explicit DefaultGeneratorScope(at::Generator device)
      : device_(std::move(device)),
        default_(at::detail::getDefaultCPUGenerator()),
        before_(state_of(default_)) {
    give(default_, state_of(device_));
  }
  ~DefaultGeneratorScope() {
    give(device_, state_of(default_));
    give(default_, before_);
  }
  DefaultGeneratorScope(const DefaultGeneratorScope&) = delete;
  DefaultGeneratorScope& operator=(const DefaultGeneratorScope&) = delete;

 private:
  struct State {
    at::mt19937 engine;
    std::optional<float> next_float;
    std::optional<double> next_double;
  };
  static State state_of(at::Generator& generator) {
    const std::lock_guard lock(generator.mutex());
    auto* cpu = at::check_generator<at::CPUGeneratorImpl>(generator);
    return {cpu->engine(), cpu->next_float_normal_sample(), cpu->next_double_normal_sample()};
  }
  static void give(at::Generator& generator, const State& state) {
    const std::lock_guard lock(generator.mutex());
    auto* cpu = at::check_generator<at::CPUGeneratorImpl>(generator);
    cpu->set_engine(state.engine);
    cpu->set_next_float_normal_sample(state.next_float);
    cpu->set_next_double_normal_sample(state.next_double);
  }

  at::Generator device_, default_;
  State before_;
};

// Without a Meta kernel, the shapes that the CPU kernel gives for ones are taken, up to this size.
constexpr int64_t kScratchBytes = int64_t(256) << 20;

// A functional form that is made of the form with out= has that one's kernels.
bool has_cpu_kernel(const c10::OperatorHandle& op) {
  using Key = c10::DispatchKey;
  if (!op.hasComputedKernelForDispatchKey(Key::CPU)) return false;
  if (op.hasKernelForDispatchKey(Key::CPU)) return true;
  if (!op.hasKernelForDispatchKey(Key::CompositeExplicitAutogradNonFunctional)) return true;
  const auto out = c10::Dispatcher::singleton().findSchema({op.operator_name().name, "out"});
  return !out || out->hasComputedKernelForDispatchKey(Key::CPU);
}

c10::Device device_of(const OpFacts& facts, const TensorArguments& tensors) {
  const at::Tensor* first = nullptr;
  for (const auto& argument : tensors) {
    if (is_trn(*argument.tensor)) {
      first = argument.tensor;
      break;
    }
  }
  if (first == nullptr) return {device_type(), current_device()};
  if (!facts.mixes_devices) {
    for (const auto& argument : tensors) {
      const at::Tensor& tensor = *argument.tensor;
      TORCH_CHECK(tensor.device() == first->device() || (tensor.dim() == 0 && tensor.is_cpu()),
                  "Expected all tensors to be on the same device, but found at least two devices, ",
                  first->device(), " and ", tensor.device(), "! (in ", facts.name, ")");
    }
  }
  return first->device();
}

// Phantom mode takes a factorization to go well, so that no script turns away from it.
void succeed(const at::Tensor& info) {
  Block* const block = block_of(info);
  if (block == nullptr || !covers_storage(info)) return;
  if (!can_be_known(block->bytes, info.scalar_type())) return;
  block->known = true;
  host_alias(info).zero_();
}

// The choices of unknown values go round in turn, so that what they choose from (experts) gets
// equal shares, and shapes that depend on them are known.
void choose_in_turn(const at::Tensor& indices, const at::Tensor& from, int64_t dim) {
  Block* const block = block_of(indices);
  if (block == nullptr || from.dim() == 0 || !covers_storage(indices)) return;
  if (!can_be_known(block->bytes, indices.scalar_type())) return;
  block->known = true;
  const QuietScope quiet;
  at::Tensor last = host_alias(indices).transpose(dim, -1);
  last.copy_(at::arange(last.numel()).remainder(from.size(dim)).view(last.sizes()));
  add_note(
      "topk of values that phantom mode does not know chooses in turn: experts get equal shares");
}

}  // namespace

const char* running_op() { return op_of_thread; }

// One call, from its arguments to its results.
struct AtenKernel::Call {
  const c10::OperatorHandle& op;
  torch::jit::Stack& stack;
  TensorArguments tensors;
  c10::Device device;
  std::optional<workload::Signature> signature;  // of a plan that is being made
  std::vector<at::Tensor> host;                  // aliases of `tensors`, after run_on_host
  std::vector<c10::IValue> host_results;
  bool ran = false;
  std::vector<c10::IValue> results;
  c10::SmallVector<Block*, 8> output_blocks;
  std::unique_ptr<CallPlan> own_plan;  // of a call that cannot be cached
};

AtenKernel::AtenKernel(const c10::OperatorHandle& op)
    : facts_(facts_of(op)),
      special_(special_op(facts_.name)),
      puts_by_index_(facts_.name == "aten::_index_put_impl_"),
      is_custom_(facts_.name.rfind("aten::", 0) != 0),
      keeps_found_inf_(facts_.name == "aten::_amp_foreach_non_finite_check_and_unscale_"),
      is_true_(truth_rule(facts_.name)),
      chooses_(facts_.name == "aten::topk") {
  has_host_kernel_ = is_custom_ || special_.host != nullptr || has_cpu_kernel(op);
  is_scaled_product_ = facts_.name.rfind("aten::_scaled_mm", 0) == 0 ||
                       facts_.name.rfind("aten::_scaled_grouped_mm", 0) == 0;
  if (puts_by_index_ || facts_.name == "aten::index.Tensor" ||
      facts_.name == "aten::index.Tensor_out") {
    mask_position_ = 1;
  }
}

// True when the op is done already.
bool AtenKernel::prepare_indices(torch::jit::Stack& stack) const {
  check_index_devices(stack, facts_.arguments.size());
  if (puts_by_index_ && index_put_on_host(stack)) return true;
  if (puts_by_index_ && index_put_as_masked_fill(stack)) return true;
  expand_masks(stack, facts_.arguments.size(), size_t(mask_position_));
  return false;
}

void AtenKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                            torch::jit::Stack* stack) {
  const OpScope scope(facts_.name.c_str());
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (mask_position_ >= 0 && prepare_indices(*stack)) return;
  TensorArguments tensors = tensor_arguments(facts_, *stack);
  const c10::Device device = device_of(facts_, tensors);
  Call call{op, *stack, std::move(tensors), device, {}, {}, {}, false, {}, {}, {}};
  const CallPlan* const found = plan(call);
  if (!call.ran && values_known(call, found)) run_on_host(call);
  collect_results(call, *found);
  record(call, *found);
  torch::jit::drop(*stack, facts_.arguments.size());
  for (auto& value : call.results) stack->push_back(std::move(value));
}

const CallPlan* AtenKernel::plan(Call& call) {
  thread_local std::vector<int64_t> key;
  const bool cached = !facts_.dynamic_shape && write_key(facts_, call.stack, key);
  const uint64_t hash = cached ? hash_key(key) : 0;
  if (cached) {
    if (const CallPlan* const found = cache_.find(key, hash)) return found;
  }
  std::vector<int64_t> own_key;
  if (cached) own_key = key;  // making a plan may call other ops
  call.signature = signature_of_arguments(facts_, call.stack, call.tensors);
  TORCH_CHECK_NOT_IMPLEMENTED(call.signature->int_or("sparse", 0) == 0, facts_.name,
                              ": sparse gradients are not supported on this device: leave out "
                              "sparse=True");
  for (const auto& argument : call.tensors) {  // two numbers in a byte, and no rule for them
    const bool is_packed = argument.tensor->scalar_type() == at::kFloat4_e2m1fn_x2;
    TORCH_CHECK_NOT_IMPLEMENTED(!is_scaled_product_ || !is_packed, facts_.name,
                                ": products of float4 are not supported on this device: use a "
                                "float8 dtype");
  }
  auto made = make_plan(call);
  made->signature = finish_signature(std::move(*call.signature), facts_, *made);
  if (cached) {
    made->key = std::move(own_key);
    return cache_.add(std::move(made), hash);
  }
  call.own_plan = std::move(made);
  return call.own_plan.get();
}

std::unique_ptr<CallPlan> AtenKernel::make_plan(Call& call) {
  if (facts_.in_place) return plan_in_place(facts_, call.tensors);
  const bool known = values_known(call, nullptr);
  if (facts_.dynamic_shape) {
    if (!known) {
      TORCH_CHECK_NOT_IMPLEMENTED(special_.meta, facts_.name,
                                  ": the shape of its result depends on values that phantom mode "
                                  "does not know; use compute mode");
      return plan_by_meta(call.op, facts_, call.stack, call.tensors);
    }
    run_on_host(call);
    return plan_by_results(call.tensors, call.host, call.host_results);
  }
  std::exception_ptr failure;
  bool is_missing = false;
  try {
    return plan_by_meta(call.op, facts_, call.stack, call.tensors);
  } catch (const c10::NotImplementedError&) {
    failure = std::current_exception();
    is_missing = true;
  } catch (python_error& error) {
    failure = std::current_exception();
    is_missing = is_python_not_implemented(error);
  } catch (const std::exception& error) {
    failure = std::current_exception();
    // What torch.library.custom_op raises where register_fake was not called.
    is_missing = is_custom_ && std::string(error.what()).find("no fake impl") != std::string::npos;
  }
  // The CPU kernel's results decide, or its error, which is the usual one, is raised.
  if (known && mode() == Mode::compute) {
    run_on_host(call);
    return plan_by_results(call.tensors, call.host, call.host_results);
  }
  if (!is_missing) std::rethrow_exception(failure);
  return plan_by_scratch(call.op, facts_, special_.host, call.stack, call.tensors, kScratchBytes,
                         failure);
}

// Whether the CPU has a kernel for these tensors: its scaled products know one scale, or one a row.
bool AtenKernel::runs_on_host(const Call& call) const {
  if (!has_host_kernel_ || !is_scaled_product_) return has_host_kernel_;
  for (const auto& argument : call.tensors) {
    const at::Tensor& tensor = *argument.tensor;
    if (facts_.arguments[size_t(argument.argument)].name != "scale_a") continue;
    const bool by_row = tensor.numel() == 1 || tensor.numel() == call.tensors[0].tensor->size(0);
    if (!by_row || tensor.scalar_type() != at::kFloat) return false;
  }
  return true;
}

bool AtenKernel::values_known(const Call& call, const CallPlan* plan) const {
  if (!runs_on_host(call)) {
    TORCH_CHECK_NOT_IMPLEMENTED(mode() == Mode::phantom, facts_.name,
                                " has no CPU kernel for these tensors, which compute mode runs: "
                                "use phantom mode");
    return false;
  }
  if (mode() == Mode::compute) return true;
  if (is_custom_ && !call.op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) return false;
  for (const auto& argument : call.tensors) {
    Block* const block = block_of(*argument.tensor);
    if (block == nullptr) {
      if (argument.tensor->device().type() == device_type()) return false;
      continue;
    }
    if (block->known) continue;
    const bool only_written = facts_.arguments[size_t(argument.argument)].is_out ||
                              (argument.mutated && facts_.overwrites);
    if (!only_written || !covers_storage(*argument.tensor) ||
        !can_be_known(block->bytes, argument.tensor->scalar_type())) {
      return false;
    }
  }
  if (plan == nullptr) return true;
  for (const auto& result : plan->returns) {
    for (const auto& tensor : result.tensors) {
      if (tensor.kind == TensorPlan::Kind::fresh && !can_be_known(tensor.bytes, tensor.dtype)) {
        return false;
      }
    }
  }
  return true;
}

void AtenKernel::run_on_host(Call& call) {
  const auto replace = [&](const at::Tensor& tensor) {
    Block* const block = block_of(tensor);
    if (block) block->known = true;  // unknown ones are overwritten
    call.host.push_back(block ? host_alias(tensor) : tensor);
    return call.host.back();
  };
  bool takes_generator = false;
  const auto replace_generator = [&](const c10::IValue& value) -> c10::IValue {
    takes_generator = true;
    const auto asked = value.toOptional<at::Generator>();
    if (!hook_functions().host_generator || !facts_.is_random) {
      return asked && asked->device().is_cpu() ? value : c10::IValue();
    }
    const auto generator = hook_functions().host_generator(asked, call.device.index());
    return generator ? c10::IValue(*generator) : c10::IValue();
  };
  torch::jit::Stack host = map_arguments(facts_, call.stack, c10::Device(c10::DeviceType::CPU),
                                         replace, replace_generator);
  const QuietScope quiet;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  std::optional<DefaultGeneratorScope> draws_from_device;
  if (facts_.is_random && !takes_generator && hook_functions().host_generator) {
    draws_from_device.emplace(*hook_functions().host_generator({}, call.device.index()));
  }
  call_kernel(call.op, special_.host, c10::DispatchKey::CPU, host);
  call.host_results = std::move(host);
  call.ran = true;
}

void AtenKernel::collect_results(Call& call, const CallPlan& plan) {
  if (call.ran) {
    adopt_resized_arguments(call.tensors, call.host);
  } else {
    for (const auto& resize : plan.resized) {
      resize_argument(*call.tensors[size_t(resize.argument)].tensor, resize.to);
    }
    for (const auto& argument : call.tensors) {
      if (!argument.mutated) continue;
      // Overflow of scaled gradients cannot be known; phantom mode reads it as "none", so the flag
      // keeps its value, or every step of a GradScaler would be skipped.
      if (keeps_found_inf_ && argument.index < 0) continue;
      if (Block* const block = block_of(*argument.tensor)) forget_values(*block);
    }
  }
  for (size_t i = 0; i < plan.returns.size(); ++i) {
    const c10::IValue* const host = call.ran ? &call.host_results[i] : nullptr;
    call.results.push_back(
        make_result(plan.returns[i], host, call.tensors, call.device, call.output_blocks));
  }
  if (!call.ran && facts_.info_return >= 0) {
    succeed(call.results[size_t(facts_.info_return)].toTensor());
  }
  if (!call.ran && is_true_ && is_true_(call.tensors, call.stack)) {
    take_as_true(call.results[0].toTensor());
  }
  if (!call.ran && chooses_) {
    choose_in_turn(call.results[1].toTensor(), call.stack[0].toTensor(), call.stack[2].toInt());
  }
}

void AtenKernel::record(const Call& call, const CallPlan& plan) const {
  if (!is_recording() || is_quiet()) return;
  c10::SmallVector<Block*, 16> inputs, mutated;
  bool requires_grad = false;
  for (const auto& argument : call.tensors) {
    if (!is_trn(*argument.tensor)) continue;
    Block* const block = block_of(*argument.tensor);
    inputs.push_back(block);
    if (argument.mutated) mutated.push_back(block);
    requires_grad |= argument.tensor->requires_grad();
  }
  record_blocks(plan.signature, {inputs.data(), inputs.size()},
                {call.output_blocks.data(), call.output_blocks.size()},
                {mutated.data(), mutated.size()}, requires_grad && at::GradMode::is_enabled());
  // The host waits for the size before it can allocate the result.
  if (facts_.dynamic_shape && !call.tensors.empty()) {
    record_host_read(std::span(call.tensors[0].tensor, 1), !call.ran);
  }
}

}  // namespace trnsim::capture
