// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// For ops that Python makes of others (FlexAttention): their parts are silenced, and one record
// stands for them.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "capture/aten/kernel.h"
#include "capture/aten/register.h"
#include "capture/bind.h"
#include "capture/recorder.h"
#include "capture/runtime/block.h"

namespace trnsim::capture {
namespace {

namespace py = pybind11;

// `with _torch.Quiet():` nothing is recorded inside.
class Quiet {
 public:
  void enter() { scope_.emplace(); }
  void leave() { scope_.reset(); }

 private:
  std::optional<QuietScope> scope_;
};

workload::TensorSlot slot_of(const std::string& name, const at::Tensor& tensor) {
  workload::TensorSlot slot;
  slot.argument = name;
  slot.meta = tensor_meta(tensor);
  return slot;
}

void record(const std::string& op, const std::vector<std::pair<std::string, at::Tensor>>& inputs,
            const std::vector<at::Tensor>& outputs,
            const std::vector<std::pair<std::string, workload::ScalarValue>>& scalars,
            const std::vector<at::Tensor>& mutated) {
  if (!is_recording() || is_quiet()) return;
  workload::Signature signature;
  signature.op = op;
  std::vector<Block*> read, written, changed;
  for (const at::Tensor& tensor : mutated) changed.push_back(block_of(tensor));
  bool requires_grad = false;
  for (const auto& [name, tensor] : inputs) {
    if (!is_trn(tensor)) continue;
    signature.inputs.push_back(slot_of(name, tensor));
    read.push_back(block_of(tensor));
    const bool is_changed = std::find(changed.begin(), changed.end(), read.back()) != changed.end();
    signature.inputs.back().mutated = is_changed && read.back() != nullptr;
    requires_grad |= tensor.requires_grad();
  }
  for (const at::Tensor& tensor : outputs) {
    signature.outputs.push_back(slot_of("out" + std::to_string(written.size()), tensor));
    written.push_back(block_of(tensor));
    const bool is_changed =
        std::find(changed.begin(), changed.end(), written.back()) != changed.end();
    signature.outputs.back().mutated = is_changed && written.back() != nullptr;
  }
  for (const auto& [name, value] : scalars) signature.scalars.push_back({name, value});
  // A Python autograd function makes its node, and then runs without grad mode.
  const at::AutoGradMode grad_mode(at::GradMode::is_enabled() || requires_grad);
  record_blocks(intern(signature), read, written, changed, requires_grad);
}

at::Tensor values_of(const at::Tensor& tensor) {
  Block* const block = block_of(tensor);
  TRN_CHECK(block != nullptr, capture, "values_of a tensor that is not on the device");
  block->known = true;
  return host_alias(tensor);
}

}  // namespace

void bind_ops(py::module_& m) {
  py::class_<Quiet>(m, "Quiet")
      .def(py::init<>())
      .def("__enter__", &Quiet::enter)
      .def("__exit__", [](Quiet& quiet, const py::args&) { quiet.leave(); });
  m.def("record_op", &record, py::arg("op"), py::arg("inputs"), py::arg("outputs"),
        py::arg("scalars"), py::arg("mutated") = std::vector<at::Tensor>{},
        "Records one op of device tensors; `mutated` are inputs that it writes in place.");
  m.def("serve_op", &serve_op, py::arg("name"), py::arg("replace"),
        "Makes an op of another library one record; False when it keeps a kernel of its own.");
  m.def("values_of", &values_of, py::arg("tensor"),
        "A CPU tensor that shares the values of a device tensor, which are known from now on.");
  m.def(
      "can_be_known",
      [](const at::Tensor& tensor) {
        const Block* const block = block_of(tensor);
        return block == nullptr || can_be_known(block->bytes, tensor.scalar_type());
      },
      py::arg("tensor"), "May the device tensor keep values in this mode?");
  m.def(
      "forget_values",
      [](const at::Tensor& tensor) {
        if (Block* const block = block_of(tensor)) forget_values(*block);
      },
      py::arg("tensor"), "The device tensor's values are not known: phantom mode.");
}

}  // namespace trnsim::capture
