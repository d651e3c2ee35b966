// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/graph.h"

#include <unordered_map>

#include "base/error.h"
#include "capture/recorder.h"
#include "capture/runtime/allocator.h"
#include "capture/runtime/event.h"
#include "workload/captured_graph.h"
#include "workload/repeat.h"

namespace trnsim::capture {
namespace {

GraphMark present() {
  GraphMark mark;
  if (!is_recording()) return mark;
  edit_recording([&](workload::Workload& workload, int32_t recording) {
    mark = {recording, int64_t(workload.records.size()), int64_t(workload.allocations.size())};
  });
  return mark;
}

}  // namespace

GraphMark begin_graph() {
  begin_captured_graph(workload::kCapturedGraph);
  return present();
}

GraphMark end_graph() {
  end_captured_graph();
  return present();
}

void replay_graph(const GraphMark& begin, const GraphMark& end) {
  if (!is_recording()) return;
  std::unordered_map<int32_t, Block*> blocks;
  const int32_t running = present().recording;
  TRN_CHECK(begin.recording == running && end.recording == running, capture,
            "a graph is replayed that was captured outside of this recording",
            "capture it inside, where the script is recorded");
  for_each_live_block([&](Block& block) {
    if (block.recording == running) blocks.emplace(block.storage, &block);
  });
  workload::StorageVersions versions;
  for (const auto& [storage, block] : blocks) versions.emplace(storage, block->version);
  edit_recording([&](workload::Workload& workload, int32_t) {
    workload::repeat_records(workload, {begin.records, end.records},
                             {begin.allocations, end.allocations}, versions,
                             [] { return runtime::next_event_id(); });
  });
  for (const auto& [storage, version] : versions) {
    Block* const block = blocks.at(storage);
    if (block->version == version) continue;
    block->version = version;
    forget_values(*block);
  }
}

}  // namespace trnsim::capture
