// What one process of P has to give to one push, and what of it has come. Pure: no sockets, no clock, no memory; the
// caller stores bytes where it is told and says so once their checksums held.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transfer/connector.h"
#include "transfer/reshard_plan.h"
#include "wire/handoff_messages.h"

namespace baton::transfer {

class PushLeg {
 public:
  // plan.from(): the process. pull.blocks cover pull.token_count tokens; the first pull.skip_tokens are here. The pull
  // outlives the leg.
  PushLeg(std::shared_ptr<const ReshardPlan> plan, const Pull& pull);

  const ReshardPlan& plan() const { return *plan_; }
  // Where a frame's payload belongs, added to `moves`. An error, and nothing to store, for what is not to come: other
  // units or sizes, blocks that are not wanted, what has come before.
  Result<void> place(const wire::PushData& data, int64_t payload_bytes, PartMoves& moves) const;
  // The payload of such a frame was stored and verified.
  void stored(const wire::PushData& data);

  bool complete() const { return missing_ == 0; }
  bool state_complete() const { return state_missing_ == 0; }
  // Tokens from the start of which nothing misses that this process gives.
  int64_t valid_tokens() const;

 private:
  // Units of a frame among what is to come.
  struct Place {
    const RouteSpan* span = nullptr;
    uint32_t first_entry = 0;  // within the span
    uint32_t first_cell = 0;   // within an item
    uint64_t first_item = 0;
    uint64_t item_step = 1;  // from a block to the next
  };
  Result<Place> find(const wire::PushData& data) const;
  Result<Place> find_items(const wire::PushData& data, Place place) const;
  int64_t token_begin(const wire::PushData& data, uint32_t index) const;
  int tokens_of(const wire::PushData& data, uint32_t index) const;
  bool has_come(const wire::PushData& data, const Place& place) const;
  PartCopy part_copy(const wire::PushData& data, uint32_t index) const;
  void add_item(int rank, bool state);

  const std::shared_ptr<const ReshardPlan> plan_;
  const Pull& pull_;
  // An item is a block of a rank, or its state: those of blocks in the order of the plan's parts from first_part_ on.
  // A cell of it is an entry of a span.
  uint64_t first_part_ = 0, block_items_ = 0;
  std::vector<uint64_t> first_cell_;  // [items + 1] into marks_
  std::vector<uint32_t> cells_left_;  // [items]
  std::vector<bool> marks_;           // has come
  int64_t missing_ = 0, state_missing_ = 0;
};

}  // namespace baton::transfer
