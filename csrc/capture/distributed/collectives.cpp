// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The collectives: checks, bytes, values.
#include <algorithm>

#include "base/error.h"
#include "capture/distributed/backend.h"
#include "capture/distributed/host_broadcasts.h"
#include "capture/distributed/values.h"
#include "capture/recorder.h"

namespace trnsim::capture::distributed {
namespace {

using workload::CallKind;

int64_t bytes_of(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += bytes_of(tensor);
  return bytes;
}

// Computed values that a reader may take for those of a real job.
void note_repeated(const at::Tensor& gathered, int64_t ranks) {
  if (mode() != Mode::compute || ranks == 1 || !is_trn(gathered)) return;
  if (!gathered.is_floating_point()) return;
  add_note(
      "values: what is gathered repeats this rank's part, since every rank is taken to hold what "
      "this one holds: losses of models that are divided between ranks are not the real job's");
}

// `does` is what the rank does with values that this process cannot have.
void note_elsewhere(int64_t rank, const char* does) {
  add_note("values: what rank " + std::to_string(rank) + " " + does +
           " reads as zeros, since that rank runs elsewhere: values after it are not real");
}

void check_pairs(const char* operation, size_t outputs, size_t inputs) {
  TRN_CHECK(outputs == inputs && inputs > 0, capture,
            std::string(operation) + " got " + std::to_string(outputs) + " outputs for " +
                std::to_string(inputs) + " inputs",
            "pass one output for each input");
}

// `whole` must be `count` times `part`.
void check_multiple(const char* operation, const at::Tensor& whole, const at::Tensor& part,
                    int64_t count) {
  TRN_CHECK(whole.numel() == part.numel() * count, capture,
            std::string(operation) + " of " + std::to_string(part.numel()) + " elements over " +
                std::to_string(count) + " ranks needs a tensor of " +
                std::to_string(part.numel() * count) + " elements, got " +
                std::to_string(whole.numel()),
            "make the large tensor ranks times the small one");
  TRN_CHECK(whole.scalar_type() == part.scalar_type(), capture,
            std::string(operation) + " with a " + c10::toString(part.scalar_type()) + " and a " +
                c10::toString(whole.scalar_type()) + " tensor",
            "give both the same dtype");
}

void check_splits(const char* what, const at::Tensor& tensor, const std::vector<int64_t>& splits,
                  int64_t ranks) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (splits.empty()) {
    TRN_CHECK(rows % ranks == 0, capture,
              std::string("all_to_all of ") + what + " with " + std::to_string(rows) +
                  " rows over " + std::to_string(ranks) + " ranks",
              "make the rows a multiple of the ranks, or pass split sizes");
    return;
  }
  int64_t sum = 0;
  for (const int64_t split : splits) sum += split;
  std::string what_to_do = "pass one split a rank, and let them sum to the rows";
  if (mode() == Mode::phantom) {
    what_to_do +=
        "; of sizes that come from values, phantom mode knows what torch.topk chose: use "
        "--mode compute for others";
  }
  TRN_CHECK(splits.size() == static_cast<size_t>(ranks) && sum == rows, capture,
            std::string("all_to_all of ") + what + " with " + std::to_string(splits.size()) +
                " splits that sum to " + std::to_string(sum) + ", over " + std::to_string(ranks) +
                " ranks and " + std::to_string(rows) + " rows",
            what_to_do);
}

// Rows [begin, end) of the `index`-th part.
std::pair<int64_t, int64_t> part_of(const at::Tensor& tensor, const std::vector<int64_t>& splits,
                                    int64_t index, int64_t ranks) {
  if (splits.empty()) {
    const int64_t rows = tensor.size(0) / ranks;
    return {index * rows, (index + 1) * rows};
  }
  int64_t begin = 0;
  for (int64_t i = 0; i < index; ++i) begin += splits[size_t(i)];
  return {begin, begin + splits[size_t(index)]};
}

// Bytes of the part of each rank.
std::vector<int64_t> bytes_of_parts(const at::Tensor& tensor, const std::vector<int64_t>& splits,
                                    int64_t ranks) {
  if (splits.empty()) return std::vector<int64_t>(size_t(ranks), bytes_of(tensor) / ranks);
  const int64_t row_bytes = tensor.size(0) == 0 ? 0 : bytes_of(tensor) / tensor.size(0);
  std::vector<int64_t> parts;
  for (const int64_t split : splits) parts.push_back(split * row_bytes);
  return parts;
}

std::vector<int64_t> bytes_of_each(const std::vector<at::Tensor>& tensors) {
  std::vector<int64_t> parts;
  for (const at::Tensor& tensor : tensors) parts.push_back(bytes_of(tensor));
  return parts;
}

bool are_even(const std::vector<int64_t>& parts) {
  return std::all_of(parts.begin(), parts.end(), [&](int64_t part) { return part == parts[0]; });
}

}  // namespace

UniformBackend::WorkPtr UniformBackend::broadcast(Tensors& tensors,
                                                  const c10d::BroadcastOptions& opts) {
  check_root("broadcast", opts.rootRank);
  const Message message{CallKind::broadcast, c10d::OpType::BROADCAST, bytes_of(tensors),
                        opts.asyncOp, opts.rootRank};
  WorkPtr work = issue(message, tensors, tensors, tensors);
  if (!tensors.empty() && !is_trn(tensors[0])) broadcast_on_host(tensors, opts.rootRank);
  return work;
}

// A device tensor keeps what it holds. Of the CPU's, what it holds may be memory that nobody wrote.
void UniformBackend::broadcast_on_host(const Tensors& tensors, int64_t root) {
  const std::string place = place_of(ranks_, root);
  if (root == rank_) return keep_broadcast(place, tensors);
  if (fill_from_broadcast(place, tensors)) return;
  for (const at::Tensor& tensor : tensors) fill_from_elsewhere(tensor);
  note_elsewhere(ranks_.rank_at(root), "broadcasts in a CPU tensor");
}

UniformBackend::WorkPtr UniformBackend::allreduce(Tensors& tensors,
                                                  const c10d::AllreduceOptions& opts) {
  const Message message{CallKind::all_reduce, c10d::OpType::ALLREDUCE, bytes_of(tensors),
                        opts.asyncOp};
  WorkPtr work = issue(message, tensors, tensors, tensors);
  for (const at::Tensor& tensor : tensors) reduce_in_place(tensor, opts.reduceOp, size_);
  return work;
}

UniformBackend::WorkPtr UniformBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  const Message message{CallKind::all_reduce, c10d::OpType::ALLREDUCE_COALESCED, bytes_of(tensors),
                        opts.asyncOp};
  WorkPtr work = issue(message, tensors, tensors, tensors);
  for (const at::Tensor& tensor : tensors) reduce_in_place(tensor, opts.reduceOp, size_);
  return work;
}

UniformBackend::WorkPtr UniformBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  check_root("reduce", opts.rootRank);
  const Message message{CallKind::reduce, c10d::OpType::REDUCE, bytes_of(tensors), opts.asyncOp,
                        opts.rootRank};
  const bool is_root = opts.rootRank == rank_;
  WorkPtr work = issue(message, tensors, is_root ? tensors : Tensors{}, tensors);
  if (is_root) {
    for (const at::Tensor& tensor : tensors) reduce_in_place(tensor, opts.reduceOp, size_);
  }
  return work;
}

UniformBackend::WorkPtr UniformBackend::gather_tensors(const Tensors& outputs,
                                                       const Tensors& inputs, c10d::OpType op,
                                                       const c10d::AllgatherOptions& opts) {
  check_pairs("all_gather", outputs.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_multiple("all_gather", outputs[i], inputs[i], size_);
  }
  const Message message{CallKind::all_gather, op, bytes_of(outputs), opts.asyncOp};
  WorkPtr work = issue(message, inputs, outputs, outputs);
  for (size_t i = 0; i < inputs.size(); ++i) fill_with(outputs[i], inputs[i]);
  note_repeated(outputs[0], size_);
  return work;
}

UniformBackend::WorkPtr UniformBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::AllgatherOptions& opts) {
  return gather_tensors({output}, {input}, c10d::OpType::_ALLGATHER_BASE, opts);
}

UniformBackend::WorkPtr UniformBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  return gather_tensors(outputs, inputs, c10d::OpType::ALLGATHER_INTO_TENSOR_COALESCED, opts);
}

UniformBackend::WorkPtr UniformBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions& opts) {
  check_pairs("all_gather", outputs.size(), inputs.size());
  Tensors flat;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_count("all_gather", "outputs", outputs[i].size());
    flat.insert(flat.end(), outputs[i].begin(), outputs[i].end());
  }
  const Message message{CallKind::all_gather, c10d::OpType::ALLGATHER, bytes_of(flat),
                        opts.asyncOp};
  WorkPtr work = issue(message, inputs, flat, flat);
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (const at::Tensor& output : outputs[i]) fill_with(output, inputs[i]);
  }
  note_repeated(inputs[0], size_);
  return work;
}

// Deprecated and the other way round: outputs[rank][tensor].
UniformBackend::WorkPtr UniformBackend::allgather_coalesced(std::vector<Tensors>& outputs,
                                                            Tensors& inputs,
                                                            const c10d::AllgatherOptions& opts) {
  check_count("all_gather", "output lists", outputs.size());
  Tensors flat;
  for (const Tensors& of_rank : outputs) {
    check_pairs("all_gather", of_rank.size(), inputs.size());
    flat.insert(flat.end(), of_rank.begin(), of_rank.end());
  }
  const Message message{CallKind::all_gather, c10d::OpType::ALLGATHER_COALESCED, bytes_of(flat),
                        opts.asyncOp};
  WorkPtr work = issue(message, inputs, flat, flat);
  for (const Tensors& of_rank : outputs) {
    for (size_t i = 0; i < inputs.size(); ++i) fill_with(of_rank[i], inputs[i]);
  }
  if (!inputs.empty()) note_repeated(inputs[0], size_);
  return work;
}

UniformBackend::WorkPtr UniformBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                               const c10d::GatherOptions& opts) {
  check_root("gather", opts.rootRank);
  check_pairs("gather", 1, inputs.size());
  const Message message{CallKind::gather, c10d::OpType::GATHER, bytes_of(inputs[0]) * size_,
                        opts.asyncOp, opts.rootRank};
  if (opts.rootRank != rank_) return issue(message, inputs, {}, {});
  check_pairs("gather", outputs.size(), 1);
  check_count("gather", "outputs", outputs[0].size());
  WorkPtr work = issue(message, inputs, outputs[0], outputs[0]);
  for (const at::Tensor& output : outputs[0]) fill_with(output, inputs[0]);
  return work;
}

UniformBackend::WorkPtr UniformBackend::gather_single(at::Tensor& output, at::Tensor& input,
                                                      const c10d::GatherOptions& opts) {
  check_root("gather", opts.rootRank);
  const Message message{CallKind::gather, c10d::OpType::GATHER, bytes_of(input) * size_,
                        opts.asyncOp, opts.rootRank};
  if (opts.rootRank != rank_) return issue(message, {input}, {}, {});
  check_multiple("gather", output, input, size_);
  WorkPtr work = issue(message, {input}, {output}, {output});
  fill_with(output, input);
  return work;
}

UniformBackend::WorkPtr UniformBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                const c10d::ScatterOptions& opts) {
  check_root("scatter", opts.rootRank);
  check_pairs("scatter", outputs.size(), 1);
  const Message message{CallKind::scatter, c10d::OpType::SCATTER, bytes_of(outputs[0]) * size_,
                        opts.asyncOp, opts.rootRank};
  if (opts.rootRank != rank_) {
    WorkPtr work = issue(message, {}, outputs, outputs);
    fill_from_elsewhere(outputs[0]);
    if (mode() == Mode::compute) note_elsewhere(ranks_.rank_at(opts.rootRank), "scatters");
    return work;
  }
  check_pairs("scatter", 1, inputs.size());
  check_count("scatter", "inputs", inputs[0].size());
  WorkPtr work = issue(message, inputs[0], outputs, outputs);
  fill_with(outputs[0], inputs[0][size_t(rank_)]);
  return work;
}

UniformBackend::WorkPtr UniformBackend::reduce_slices(const Tensors& outputs, const Tensors& inputs,
                                                      c10d::OpType op,
                                                      const c10d::ReduceScatterOptions& opts) {
  check_pairs("reduce_scatter", outputs.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_multiple("reduce_scatter", inputs[i], outputs[i], size_);
  }
  const Message message{CallKind::reduce_scatter, op, bytes_of(inputs), opts.asyncOp};
  WorkPtr work = issue(message, inputs, outputs, outputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    reduce_slice(outputs[i], inputs[i], rank_, size_, opts.reduceOp, size_);
  }
  return work;
}

UniformBackend::WorkPtr UniformBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  return reduce_slices({output}, {input}, c10d::OpType::_REDUCE_SCATTER_BASE, opts);
}

UniformBackend::WorkPtr UniformBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  return reduce_slices(outputs, inputs, c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED, opts);
}

UniformBackend::WorkPtr UniformBackend::reduce_scatter(Tensors& outputs,
                                                       std::vector<Tensors>& inputs,
                                                       const c10d::ReduceScatterOptions& opts) {
  check_pairs("reduce_scatter", outputs.size(), inputs.size());
  Tensors flat;
  for (const Tensors& list : inputs) {
    check_count("reduce_scatter", "inputs", list.size());
    flat.insert(flat.end(), list.begin(), list.end());
  }
  const Message message{CallKind::reduce_scatter, c10d::OpType::REDUCE_SCATTER, bytes_of(flat),
                        opts.asyncOp};
  WorkPtr work = issue(message, flat, outputs, outputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    reduce_slice(outputs[i], inputs[i][size_t(rank_)], 0, 1, opts.reduceOp, size_);
  }
  return work;
}

void UniformBackend::Message::set_parts(std::vector<int64_t> sent, std::vector<int64_t> from_each) {
  const bool is_uneven = !are_even(sent);
  if (is_uneven || !are_even(from_each)) received = std::move(from_each);
  if (is_uneven) splits = std::move(sent);
}

UniformBackend::WorkPtr UniformBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                      std::vector<int64_t>& output_splits,
                                                      std::vector<int64_t>& input_splits,
                                                      const c10d::AllToAllOptions& opts) {
  check_splits("the output", output, output_splits, size_);
  check_splits("the input", input, input_splits, size_);
  Message message{CallKind::all_to_all, c10d::OpType::ALLTOALL_BASE, bytes_of(input), opts.asyncOp};
  message.set_parts(bytes_of_parts(input, input_splits, size_),
                    bytes_of_parts(output, output_splits, size_));
  WorkPtr work = issue(message, {input}, {output}, {output});
  // Every peer sends what this rank would send to itself; where the receiver's splits contradict
  // that, the part is repeated or cut.
  const auto [begin, end] = part_of(input, input_splits, rank_, size_);
  const at::Tensor part = input.narrow(0, begin, end - begin);
  if (output_splits.empty()) {
    fill_with(output, part);
    return work;
  }
  int64_t at = 0;
  for (const int64_t split : output_splits) {
    if (split > 0) fill_with(output.narrow(0, at, split), part);
    at += split;
  }
  return work;
}

UniformBackend::WorkPtr UniformBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllToAllOptions& opts) {
  check_count("all_to_all", "outputs", outputs.size());
  check_count("all_to_all", "inputs", inputs.size());
  Message message{CallKind::all_to_all, c10d::OpType::ALLTOALL, bytes_of(inputs), opts.asyncOp};
  message.set_parts(bytes_of_each(inputs), bytes_of_each(outputs));
  WorkPtr work = issue(message, inputs, outputs, outputs);
  for (const at::Tensor& output : outputs) fill_with(output, inputs[size_t(rank_)]);
  return work;
}

}  // namespace trnsim::capture::distributed
