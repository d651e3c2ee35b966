// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Where a training step begins and ends, and what one rank worked on in it.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "workload/messages.h"
#include "workload/whole_steps.h"
#include "workload/workload.h"

namespace trnsim::workload {
namespace {

bool is_marker(const Record& record, MarkerKind kind) {
  return record.kind == RecordKind::marker && record.payload == int32_t(kind);
}
bool is_setup(const Record& record, int64_t value) {
  return is_marker(record, MarkerKind::setup) && record.value == value;
}
// The first op of a forward pass that autograd will walk back: where a loop without modules begins.
bool is_differentiable_forward(const Record& record) {
  return record.kind == RecordKind::op && record.phase == Phase::forward && !record.no_grad &&
         record.sequence_nr >= 0;
}

bool is_gradient_work(const Record& record) {
  return record.phase == Phase::backward || record.phase == Phase::optimizer;
}

// Nothing has a gradient, nor changes a parameter: the script generates or evaluates.
bool is_inference(const Workload& workload) {
  return std::none_of(workload.records.begin(), workload.records.end(), [](const Record& record) {
    return is_gradient_work(record) || is_marker(record, MarkerKind::forward_begin) ||
           is_marker(record, MarkerKind::optimizer_begin) || is_differentiable_forward(record);
  });
}

// Finds where a script without torch.optim changes its parameters by hand: in place, outside of
// modules, after a backward. Parameters are also tensors that ops with a gradient have read, unless
// they are overwritten whole, as static inputs are.
class UpdatesByHand {
 public:
  explicit UpdatesByHand(const Workload& workload)
      : workload_(workload),
        is_off_(std::any_of(workload.records.begin(), workload.records.end(), [](const Record& r) {
          return is_marker(r, MarkerKind::optimizer_end) || is_marker(r, MarkerKind::step) ||
                 is_marker(r, MarkerKind::optimizer_skipped);
        })) {}

  bool is_update(const Record& record) {
    if (is_off_ || record.kind != RecordKind::op) return false;
    if (record.phase == Phase::backward) has_gradients_ = true;
    const bool is_outside = record.phase == Phase::forward || record.phase == Phase::other;
    const bool changes = has_gradients_ && is_outside && is_root(record);
    const Signature& signature = workload_.signature_of(record);
    bool found = false;
    for (int32_t i = 0; i < input_count(workload_, record); ++i) {
      const int32_t storage = workload_.uses[size_t(record.uses_begin + i)].storage;
      if (storage < 0) continue;
      if (changes && signature.inputs[size_t(i)].mutated) found |= is_parameter(storage, signature);
      if (is_differentiable_forward(record)) differentiated_.insert(storage);
    }
    return found;
  }

  void begin_step() {
    has_gradients_ = false;
    differentiated_.clear();
  }

 private:
  bool is_root(const Record& record) const {
    return record.module < 0 || workload_.modules[size_t(record.module)].empty();
  }
  bool is_parameter(int32_t storage, const Signature& signature) const {
    if (workload_.storages[size_t(storage)].kind == StorageKind::parameter) return true;
    const bool overwrites = signature.op == "aten::copy_" || signature.op == "aten::zero_" ||
                            signature.op.starts_with("aten::fill_");
    return !overwrites && differentiated_.contains(storage);
  }

  const Workload& workload_;
  bool is_off_;
  bool has_gradients_ = false;  // since the step began
  std::set<int32_t> differentiated_;
};

// -1 where an optimizer ends the step.
int64_t last_update_by_hand(const Workload& workload, const Step& step) {
  int64_t last = -1;
  if (!step.updates_by_hand) return last;
  UpdatesByHand hand(workload);
  for (int64_t i = step.begin; i < step.end; ++i) {
    if (hand.is_update(workload.records[size_t(i)])) last = i;
  }
  return last;
}

// A copy of what a model or a checkpoint holds: to the host after an optimizer; to the device, with
// buffers, before the first forward.
bool moves_state(const Workload& workload, const Record& record, bool is_setup) {
  const char* copy = is_setup ? "trnsim::copy_h2d" : "trnsim::copy_d2h";
  const bool is_copy = record.kind == RecordKind::op && workload.signature_of(record).op == copy;
  const bool is_read = record.kind == RecordKind::host_read && !is_setup;
  if ((!is_copy && !is_read) || record.uses_count == 0) return false;
  const int32_t storage = workload.uses[size_t(record.uses_begin)].storage;
  if (storage < 0) return false;
  const StorageKind kind = workload.storages[size_t(storage)].kind;
  return kind == StorageKind::parameter || kind == StorageKind::optimizer_state ||
         (is_setup && kind == StorageKind::buffer);
}

// Whether a module's own name is that of an embedding of positions, which counts no tokens.
bool is_named_for_positions(const std::string& path) {
  const std::string name = path.substr(path.rfind('.') + 1);
  return name == "wpe" || name == "pe" || name.starts_with("pos") ||
         name.find("_pos") != std::string::npos || name.find("position") != std::string::npos;
}

// What an embedding looks up, or null for every other record and for positions.
const TensorSlot* embedded(const Workload& workload, const Record& record) {
  if (record.kind != RecordKind::op) return nullptr;
  const Signature& signature = workload.signature_of(record);
  if (signature.op != "aten::embedding") return nullptr;
  if (is_named_for_positions(workload.modules[size_t(record.module)])) return nullptr;
  return signature.input("indices");
}

// What a script does under no_grad after its optimizer, in pieces that share no tensor made there.
// A piece belongs to the step where the next step trains on what it made (a frozen encoder, a
// teacher), and where it changes a tensor which was there before (a moving average of the
// parameters, clamping), unless a module ran in it (evaluation).
class Pieces {
 public:
  Pieces(const Workload& workload, int64_t begin) : workload_(workload), begin_(begin) {}

  void add(int64_t index) {
    const Record& record = workload_.records[size_t(index)];
    const auto piece = int32_t(records_.size());
    records_.push_back(index);
    joined_.push_back(piece);
    is_evaluation_.push_back(record.phase == Phase::forward);
    is_update_.push_back(false);
    is_used_.push_back(false);
    const bool calls = record.kind == RecordKind::call || record.kind == RecordKind::wait;
    if (calls) join(of_call_.try_emplace(record.payload, piece).first->second, piece);
    const int32_t inputs = record.signature < 0 ? 0 : input_count(workload_, record);
    for (int32_t i = 0; i < record.uses_count; ++i) {
      const int32_t storage = workload_.uses[size_t(record.uses_begin + i)].storage;
      if (storage < 0) continue;
      if (workload_.storages[size_t(storage)].born > begin_) {
        join(of_storage_.try_emplace(storage, piece).first->second, piece);
      } else if (i < inputs) {
        is_update_.back() |= workload_.signature_of(record).inputs[size_t(i)].mutated;
      }
    }
  }

  // What comes after, and is no piece: is it trained on what a piece made?
  void follow(int64_t index) {
    const Record& record = workload_.records[size_t(index)];
    if (record.signature < 0 || of_storage_.empty()) return;
    const int32_t inputs = input_count(workload_, record);
    std::set<int32_t> read;
    for (int32_t i = 0; i < inputs; ++i) {
      const int32_t storage = workload_.uses[size_t(record.uses_begin + i)].storage;
      const auto made = of_storage_.find(storage);
      if (made != of_storage_.end()) read.insert(made->second);
      const auto passed = passed_on_.find(storage);
      if (passed != passed_on_.end()) read.insert(passed->second.begin(), passed->second.end());
    }
    if (read.empty()) return;
    if (is_differentiable_forward(record) || record.phase == Phase::backward) {
      for (const int32_t piece : read) is_used_[size_t(piece)] = true;
      return;
    }
    for (int32_t i = inputs; i < record.uses_count; ++i) {
      const int32_t storage = workload_.uses[size_t(record.uses_begin + i)].storage;
      if (storage >= 0) passed_on_[storage].insert(read.begin(), read.end());
    }
  }

  std::vector<int64_t> of_step() {
    for (int32_t piece = 0; piece < int32_t(records_.size()); ++piece) {
      is_evaluation_[size_t(root(piece))] |= is_evaluation_[size_t(piece)];
      is_update_[size_t(root(piece))] |= is_update_[size_t(piece)];
      is_used_[size_t(root(piece))] |= is_used_[size_t(piece)];
    }
    std::vector<int64_t> found;
    for (int32_t piece = 0; piece < int32_t(records_.size()); ++piece) {
      const auto at = size_t(root(piece));
      if (is_used_[at] || (is_update_[at] && !is_evaluation_[at]))
        found.push_back(records_[size_t(piece)]);
    }
    return found;
  }

 private:
  int32_t root(int32_t piece) {
    while (joined_[size_t(piece)] != piece) {
      piece = joined_[size_t(piece)] = joined_[size_t(joined_[size_t(piece)])];
    }
    return piece;
  }
  void join(int32_t a, int32_t b) { joined_[size_t(root(b))] = root(a); }

  const Workload& workload_;
  int64_t begin_;
  std::vector<int64_t> records_;
  std::vector<int32_t> joined_;                               // by position in records_
  std::vector<uint8_t> is_evaluation_, is_update_, is_used_;  // the same
  std::map<int32_t, std::set<int32_t>> passed_on_;            // of storages made of theirs
  std::map<int32_t, int32_t> of_storage_, of_call_;
};

}  // namespace

std::vector<Step> find_steps(const Workload& workload) {
  const auto& records = workload.records;
  const bool by_hand = std::any_of(records.begin(), records.end(), [](const Record& record) {
    return is_marker(record, MarkerKind::step);
  });
  std::vector<Step> steps;
  std::set<int64_t> known;  // optimizers that have stepped
  Step step;
  const auto close = [&](int64_t end, bool whole) {
    step.end = end;
    step.whole = whole;
    steps.push_back(step);
    step = Step{end, end};
  };
  bool stepped = false;  // an optimizer stepped or was skipped since the boundary
  UpdatesByHand hand(workload);
  for (int64_t i = 0; i < int64_t(records.size()); ++i) {
    const Record& record = records[size_t(i)];
    const bool forward_begins = is_marker(record, MarkerKind::forward_begin) ||
                                is_setup(record, kInferenceBegins) ||
                                is_differentiable_forward(record) || is_message(workload, record);
    if (forward_begins && stepped && !by_hand) {
      close(i, true);
      hand.begin_step();
      stepped = false;
    }
    if (hand.is_update(record)) stepped = step.updates_by_hand = true;
    if (is_marker(record, MarkerKind::optimizer_end)) {
      stepped = true;
      ++step.optimizer_count;
      step.creates_state |= known.insert(record.value).second;
    }
    if (is_marker(record, MarkerKind::optimizer_skipped)) stepped = true;
    step.sets_up |= is_setup(record, kSetupOfBuckets);
    if (is_marker(record, MarkerKind::step)) {
      close(i + 1, true);
      stepped = false;
    }
  }
  const int64_t end = int64_t(records.size());
  if (end > step.begin) close(end, stepped && !by_hand);
  return steps;
}

Step choose_step(const std::vector<Step>& steps, int64_t asked) {
  TRN_CHECK(!steps.empty(), workload, "nothing was recorded",
            "run the model on torch.device(\"trn\")");
  std::vector<Step> whole;
  for (const Step& step : steps)
    if (step.whole) whole.push_back(step);
  if (whole.empty()) whole.push_back(steps.front());
  if (asked < 0) {
    for (size_t i = 1; i < whole.size(); ++i) {
      if (!whole[i].sets_up) return whole[i];
    }
    return whole[std::min<size_t>(1, whole.size() - 1)];
  }
  TRN_CHECK(asked < int64_t(whole.size()), workload,
            "no step " + std::to_string(asked) + ": the script ran " +
                std::to_string(whole.size()) + (whole.size() == 1 ? " step" : " steps"),
            "choose a step from 0 to " + std::to_string(whole.size() - 1));
  return whole[size_t(asked)];
}

std::vector<uint8_t> outside_step(const Workload& workload, const Step& step) {
  std::vector<uint8_t> outside(size_t(step.end - step.begin), 0);
  enum { idle, training, gradients } state = idle;
  std::optional<Pieces> after;  // the optimizer, of this step or the one before
  if (step.whole && step.begin > 0) after.emplace(workload, step.begin - 1);
  bool infers = false, began = false;
  const int64_t last_by_hand = last_update_by_hand(workload, step);
  const bool trains = step.whole && !is_inference(workload);
  const auto take_pieces = [&] {
    if (!after) return;
    for (const int64_t i : after->of_step()) outside[size_t(i - step.begin)] = 0;
    after.reset();
  };
  for (int64_t i = step.begin; i < step.end; ++i) {
    const Record& record = workload.records[size_t(i)];
    infers |= is_setup(record, kInferenceBegins);
    if (infers) {
      outside[size_t(i - step.begin)] = 1;
      infers = !is_setup(record, kInferenceEnds);
      continue;
    }
    if (!trains) continue;
    if (is_marker(record, MarkerKind::forward_begin)) state = training;
    if (is_marker(record, MarkerKind::optimizer_begin)) state = gradients;
    if (is_marker(record, MarkerKind::optimizer_end)) state = idle;
    if (state != idle) take_pieces();
    if (is_marker(record, MarkerKind::optimizer_end)) after.emplace(workload, i);
    if (i == last_by_hand) {
      state = idle;
      continue;
    }
    began |= state != idle;
    if (state == idle && (began || step.begin == 0) && moves_state(workload, record, !began)) {
      outside[size_t(i - step.begin)] = 1;
      continue;
    }
    if (record.phase == Phase::backward && state == training) state = gradients;
    if (!record.no_grad || is_gradient_work(record) || record.phase == Phase::recomputation) {
      if (after) after->follow(i);
      continue;
    }
    const bool in_forward = record.phase == Phase::forward && state == training;
    outside[size_t(i - step.begin)] = !in_forward && state != gradients;
    if (after && outside[size_t(i - step.begin)]) after->add(i);
  }
  for (int64_t i = step.end; after && i < int64_t(workload.records.size()); ++i) {
    const Record& record = workload.records[size_t(i)];
    if (is_marker(record, MarkerKind::optimizer_begin)) break;
    after->follow(i);
  }
  take_pieces();
  return outside;
}

namespace {

// By record of the step: forward passes that no backward of it walks back, though it does walk back
// another one before it: an agent that acts before it learns. Told by what the passes made with a
// gradient and backward reads, and by autograd's numbers: an embedding makes nothing that it reads.
std::vector<uint8_t> forwards_without_backward(const Workload& workload, const Step& step) {
  struct Pass {
    int64_t begin;
    int32_t turn;  // passes between the same two backwards have the same
    bool is_read;
  };
  std::vector<Pass> passes;
  std::vector<uint8_t> turn_is_read(1, 0);
  std::map<int64_t, int64_t> forward_of;  // records, by autograd's number
  bool gradients = false;
  const auto read = [&](int64_t record) {
    const auto after =
        std::upper_bound(passes.begin(), passes.end(), record,
                         [](int64_t at, const Pass& pass) { return at < pass.begin; });
    if (after == passes.begin()) return;
    std::prev(after)->is_read = true;
    turn_is_read[size_t(std::prev(after)->turn)] = 1;
  };
  for (int64_t i = step.begin; i < step.end; ++i) {
    const Record& record = workload.records[size_t(i)];
    if (is_marker(record, MarkerKind::forward_begin)) {
      if (gradients) turn_is_read.push_back(0);
      gradients = false;
      passes.push_back({i, int32_t(turn_is_read.size()) - 1, false});
    }
    if (is_differentiable_forward(record)) forward_of.emplace(record.sequence_nr, i);
    if (record.kind != RecordKind::op || record.phase != Phase::backward) continue;
    gradients = true;
    const auto walked = forward_of.find(record.sequence_nr);
    if (walked != forward_of.end()) read(walked->second);
    for (int32_t k = 0; k < input_count(workload, record); ++k) {
      const int32_t storage = workload.uses[size_t(record.uses_begin + k)].storage;
      if (storage < 0) continue;
      const int64_t born = workload.storages[size_t(storage)].born;
      if (born < step.begin || born >= i) continue;
      if (is_differentiable_forward(workload.records[size_t(born)])) read(born);
    }
  }
  std::vector<uint8_t> without(size_t(step.end - step.begin), 0);
  for (const Pass& pass : passes) {
    without[size_t(pass.begin - step.begin)] = !pass.is_read && turn_is_read[size_t(pass.turn)];
  }
  return without;
}

bool begins_inside_optimizer(const Workload& workload, const Step& step) {
  for (int64_t i = step.begin; i < step.end; ++i) {
    if (is_marker(workload.records[size_t(i)], MarkerKind::optimizer_begin)) return false;
    if (is_marker(workload.records[size_t(i)], MarkerKind::optimizer_end)) return true;
  }
  return false;
}

// Evaluations of the closure that an optimizer is given: the first counts (the only one of most),
// further ones, as L-BFGS asks for, are of the same samples.
class Closures {
 public:
  Closures(const Workload& workload, const Step& step)
      : inside_(begins_inside_optimizer(workload, step)) {}

  // Whether what the record begins is no further evaluation.
  bool counts(const Record& record) {
    if (is_marker(record, MarkerKind::optimizer_begin)) inside_ = true;
    if (is_marker(record, MarkerKind::optimizer_end)) inside_ = ran_ = evaluated_ = false;
    ran_ |= inside_ && is_marker(record, MarkerKind::forward_begin);
    evaluated_ |= ran_ && record.kind == RecordKind::op && record.phase == Phase::optimizer;
    return !evaluated_;
  }

 private:
  bool inside_;
  bool ran_ = false, evaluated_ = false;
};

}  // namespace

Counted counted_in(const Workload& workload, const Step& step) {
  Counted counted;
  int64_t marked = -1;
  bool needs_samples = true, needs_tokens = true;  // of the forward that runs
  // Of the first module every forward counts: others are called with parts of the same samples, as
  // the head of a model on chunks whose backward runs between. Of a pipeline also the first
  // embedding, whose every call counts.
  const auto begin = workload.records.begin();
  const bool is_pipeline =
      std::any_of(begin + step.begin, begin + step.end,
                  [&](const Record& record) { return is_message(workload, record); });
  int32_t first_module = -1, first_embedding = -1;
  const auto is_other = [](int32_t& first, int32_t module) {
    if (first < 0) first = module;
    return module != first;
  };
  const std::vector<uint8_t> outside = outside_step(workload, step);
  const std::vector<uint8_t> acts = forwards_without_backward(workload, step);
  Closures closures(workload, step);
  int64_t samples = -1;  // of the forward that runs
  for (int64_t i = step.begin; i < step.end; ++i) {
    const Record& record = workload.records[size_t(i)];
    const bool is_first = closures.counts(record);
    if (!is_first || outside[size_t(i - step.begin)] || acts[size_t(i - step.begin)]) continue;
    if (is_gradient_work(record) || (is_pipeline && is_marker(record, MarkerKind::forward_begin))) {
      needs_samples = needs_tokens = true;
    }
    if (is_marker(record, MarkerKind::step) && record.value >= 0) marked = record.value;
    if (is_marker(record, MarkerKind::forward_begin)) samples = record.value;
    if (is_marker(record, MarkerKind::forward_begin) && needs_samples && record.value >= 0 &&
        !is_other(first_module, record.module)) {
      needs_samples = false;
      counted.samples = std::max<int64_t>(counted.samples, 0) + record.value;
    }
    if (!needs_tokens || record.phase == Phase::recomputation) continue;
    const TensorSlot* indices = embedded(workload, record);
    if (!indices) continue;
    // One a sample: its class, say, and no sequence.
    const bool is_label = indices->meta.sizes.size() == 1 && indices->meta.sizes[0] == samples;
    if (is_label) continue;
    if (is_pipeline && is_other(first_embedding, record.module)) continue;
    needs_tokens = false;
    if (counted.tokens < 0) counted.token_module = record.module;
    counted.tokens = std::max<int64_t>(counted.tokens, 0) + indices->meta.element_count();
  }
  if (marked >= 0) {
    counted.tokens = marked;
    counted.token_module = -1;
  }
  return counted;
}

}  // namespace trnsim::workload
