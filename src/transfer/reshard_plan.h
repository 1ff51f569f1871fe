// Which bytes of a prefill engine's ranks go where on a decode engine's ranks. Pure arithmetic over what both hold.
//
// A checksum unit, (block, entry, head) with all its tokens, is never cut: it is fetched and verified whole, also where
// only some of its tokens are wanted. Units that several ranks of P hold are fetched from one of them, which `choice`
// picks; where several ranks of D want a unit, it is fetched for one, and copied from there to the others.
//
// Parts are what is fetched one after the other: one block of one rank of P (or one slot). They are numbered by the
// positions they hold, so that what has arrived of the first parts is a prefix of the prompt.
//
// Cost: a plan is made once per peer and choice, in O(entries * (ranks of P + ranks of D)). A part becomes one span per
// group of layers and heads that go to the same ranks: 1 or 2 a block in practice.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/strong_id.h"
#include "transfer/holdings.h"
#include "transport/mover.h"
#include "wire/handoff_messages.h"

namespace baton::transfer {

// Where a unit belongs on a rank of D.
struct UnitTarget {
  int rank = 0;
  int entry = 0;
  int unit = 0;
  bool operator==(const UnitTarget&) const = default;
};

// Units of consecutive entries of a rank of P that go to the same places.
struct RouteSpan {
  wire::UnitSpan from;
  // Of the first unit of the first entry, by context rank of D (of states: one list). The others follow in step.
  std::vector<std::vector<UnitTarget>> targets;
};

// Consecutive tokens of a part.
struct TokenPiece {
  int from_token = 0;  // within the block of P
  int tokens = 0;
  int32_t to = -1;  // D's block or slot; -1: not wanted
  int to_token = 0;
  int context_rank = 0;  // of D
  bool operator==(const TokenPiece&) const = default;
};

// A block, or slot, of one rank of P and where its tokens go.
struct PartCopy {
  int rank = 0;
  bool state = false;
  int32_t from = 0;    // P's block or slot
  int32_t tokens = 0;  // sealed
  uint64_t generation = 0;
  std::vector<TokenPiece> pieces;
};

// What is offered and what is wanted of it. Lists are in prompt order.
struct CopyRequest {
  int64_t token_count = 0;  // offered
  int64_t wanted_tokens = 0;
  int64_t skip_tokens = 0;  // are here already: nothing is stored there
  std::span<const int32_t> from_blocks;
  std::span<const uint64_t> generations;
  std::span<const BlockId> to_blocks;
  int32_t from_slot = -1, to_slot = -1;  // of recurrent state; -1: none
  uint64_t slot_generation = 0;
};

// One descriptor: units [from_unit, + unit_count) of entries [from_entry, + entry_count) over some tokens, to one rank.
struct Copy {
  int from_rank = 0, to_rank = 0;
  bool state = false;
  bool local = false;  // to another rank of D that wants the same: no second fetch
  int32_t from_block = 0, to_block = 0;
  int from_entry = 0, to_entry = 0, entry_count = 0;
  int from_unit = 0, to_unit = 0, unit_count = 0;
  int from_token = 0, to_token = 0, token_count = 0;
};

class ReshardPlan {
 public:
  // `from` may be some of the processes of P; `to` is all of D. choice: any number.
  ReshardPlan(std::shared_ptr<const Holdings> from, std::shared_ptr<const Holdings> to, uint32_t choice);

  const Holdings& from() const { return *from_; }
  const Holdings& to() const { return *to_; }
  // What is fetched of each block (or slot) of a rank of P; empty: another rank gives it.
  const std::vector<RouteSpan>& spans(int rank, bool state) const {
    return (state ? state_routes_ : routes_)[static_cast<size_t>(rank)];
  }
  // Bytes of one block's first `tokens` tokens in these spans.
  int64_t part_bytes(int rank, bool state, int tokens) const;

  // Parts of the blocks that hold the first `tokens` tokens: [first_part(skipped), parts_for(tokens)). Those of states
  // come after all of the blocks: state_part_count() of them, if the state is wanted.
  uint64_t parts_for(int64_t tokens) const;
  // The first part that holds token `token` or one after it.
  uint64_t first_part(int64_t token) const;
  uint64_t state_part_count() const { return state_ranks_.size(); }
  // Tokens that are complete when all parts before `part` are.
  int64_t tokens_before(uint64_t part) const;
  struct Part {
    int rank = 0;
    uint32_t place = 0;  // of the block in the sequence
  };
  Part part(uint64_t index) const;
  // Of the block at a place of the sequence on a rank that gives blocks (spans() is not empty).
  uint64_t part_at(int rank, uint32_t place) const {
    return place * turns_.size() + turn_of_[static_cast<size_t>(rank)];
  }
  // Rank of P that gives part `index` of the state.
  int state_part(uint64_t index) const { return state_ranks_[index]; }
  PartCopy part_copy(uint64_t index, const CopyRequest& request) const;
  PartCopy state_copy(uint64_t index, const CopyRequest& request) const;
  // Where positions [begin, end), which one block of P holds, go to, by blocks of D.
  std::vector<TokenPiece> pieces(int64_t begin, int64_t end, const CopyRequest& request) const;

  // All descriptors of a request.
  std::vector<Copy> copies(const CopyRequest& request) const;

  // Nothing when these plans together, one per process of P, fetch all that D holds; else what is missing.
  static std::optional<std::string> missing(std::span<const ReshardPlan* const> plans);

 private:
  struct Builder;
  struct Turn {
    int context_rank = 0;
    int rank = 0;
  };
  void append_copies(const PartCopy& part, std::vector<Copy>& copies) const;

  std::shared_ptr<const Holdings> from_, to_;
  std::vector<std::vector<RouteSpan>> routes_, state_routes_;  // by rank of P
  std::vector<Turn> turns_;                                    // ranks of P that give blocks, by context rank
  std::vector<size_t> turn_of_;                                // [ranks of P] into turns_
  std::vector<uint64_t> turn_begin_;                           // [context ranks of P + 1] into turns_
  std::vector<int> state_ranks_;                               // ranks of P that give states
  // What is fetched: by context rank of P (of states: one), entry of D's model, unit.
  std::vector<bool> covered_, states_covered_;
};

// ---- bytes

// A copy within D's arena, to another rank that wants the same.
struct LocalCopy {
  int64_t from = 0;
  int64_t to = 0;
  int64_t bytes = 0;
};
struct PartMoves {
  transport::Moves moves;
  std::vector<LocalCopy> repeats;  // to be done once the moves are verified
  void clear() {
    moves.clear();
    repeats.clear();
  }
};

// All spans of a part, from P's mapped arena. checksums: [units_per_block] of P's rank.
void append_arena_moves(const ReshardPlan& plan, const PartCopy& part, std::span<const uint64_t> checksums,
                        PartMoves& moves);

// Over a connection a span is sent in frames of about a megabyte. Entries from `first` of the span on, at least one.
uint32_t frame_entries(const kv::PagedGeometry& geometry, const wire::UnitSpan& span, int tokens, uint32_t first);
int64_t span_bytes(const kv::PagedGeometry& geometry, const wire::UnitSpan& span, int tokens);
inline size_t span_units(const wire::UnitSpan& span) { return size_t{span.entry_count} * span.unit_count; }
bool span_fits(const kv::PagedGeometry& geometry, const wire::UnitSpan& span);
// The bytes of a frame in P's arena, in the order of wire::BlockData. block: from its first byte.
std::vector<std::span<const std::byte>> payload_pieces(const kv::PagedGeometry& geometry,
                                                       std::span<const std::byte> block, int tokens,
                                                       const wire::UnitSpan& span);
// From such a payload, which is entries [first, first + count) of a part's span, into D's arena. payload_from: where it
// begins in what is moved.
void append_payload_moves(const ReshardPlan& plan, const PartCopy& part, const RouteSpan& span, uint32_t first,
                          uint32_t count, std::span<const uint64_t> checksums, PartMoves& moves,
                          int64_t payload_from = 0);

}  // namespace baton::transfer
