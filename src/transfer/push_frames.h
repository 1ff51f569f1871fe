// What a process of P pushes, as frames: which units of which blocks go into one, and their bytes. Pure arithmetic over
// a plan, and reading the arena.
//
// Sketch: a frame is units of one rank that go to the same places, of about a megabyte: as many blocks as a step has
// completed, and as many of the entries that are ready as fit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/strong_id.h"
#include "kv/geometry.h"
#include "transfer/reshard_plan.h"
#include "wire/handoff_messages.h"

namespace baton::transfer {

inline constexpr int64_t kPushFrameBytes = 1 << 20;  // or one entry of one block, where that is more

// What a step completes of a prompt, and what of it is wanted.
struct PushRange {
  int64_t begin_token = 0, end_token = 0;  // the first end_token tokens are there; before begin_token they were already
  int64_t token_count = 0;                 // of the prompt
  int64_t skip_tokens = 0;                 // D has these
};

// Frames, their checksums still missing, of a rank's entries in the blocks that are complete now and were not before.
// None where another rank gives them.
std::vector<wire::PushData> push_frames(const ReshardPlan& plan, int rank, kv::EntryRange entries,
                                        const PushRange& range);
// Of all the recurrent state that a rank gives.
std::vector<wire::PushData> push_state_frames(const ReshardPlan& plan, int rank);

// Where the prompt's blocks lie.
struct PushSource {
  std::span<const std::byte> arena;  // of all ranks
  int64_t token_count = 0;
  int64_t first_place = 0;  // of blocks[0] in the prompt
  std::span<const BlockId> blocks;
  int32_t slot = -1;  // of the state
};
// Adds the frame's checksums; returns its payload.
std::vector<std::span<const std::byte>> load_frame(const Holdings& from, const PushSource& source,
                                                   wire::PushData& data);

}  // namespace baton::transfer
