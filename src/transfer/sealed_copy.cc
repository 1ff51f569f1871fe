#include "transfer/sealed_copy.h"

#include <cstring>

namespace baton::transfer {
namespace {

std::unexpected<Status> stale(const PartCopy& part) {
  return fail(Code::kFailedPrecondition, "{} {} is no longer the one that was offered: its lease ended",
              part.state ? "state slot" : "block", part.from);
}

}  // namespace

Result<void> SealedCopy::begin(const RankReaders& seals, const ReshardPlan& plan, const PartCopy& part) {
  plan_ = &plan;
  part_ = &part;
  moves_.clear();
  // The peer's slots were checked when its arena was mapped; what it offers may still name one it doesn't have.
  const auto& reader = (part.state ? seals.slots : seals.blocks)[static_cast<size_t>(part.rank)];
  if (!reader || part.from >= reader->block_count()) return stale(part);
  seals_ = &*reader;
  checksums_.resize(static_cast<size_t>(plan.from().geometry(part.rank, part.state).units_per_block()));
  const auto seal = seals_->read(part.from, checksums_);
  if (!seal || *seal != kv::Seal{part.generation, part.tokens}) return stale(part);
  append_arena_moves(plan, part, checksums_, moves_);
  return {};
}

Result<void> SealedCopy::end(const Result<void>& moved) const {
  if (!seals_->unchanged(part_->from, part_->generation)) return stale(*part_);
  if (moved) return {};
  return fail(moved.error().with_context(fmt::format("{} {} of rank {}", part_->state ? "state slot" : "block",
                                                     part_->from, plan_->from().rank(part_->rank).name)));
}

Result<void> store(transport::ShmMover& mover, const PartMoves& moves, std::span<const std::byte> source,
                   std::span<std::byte> arena) {
  BATON_TRY(mover.move(moves.moves, source, arena));
  for (const LocalCopy& repeat : moves.repeats) {
    std::memcpy(arena.data() + repeat.to, arena.data() + repeat.from, static_cast<size_t>(repeat.bytes));
  }
  return {};
}

}  // namespace baton::transfer
