#include "kv/state_pool.h"

#include <utility>

#include "base/check.h"

namespace baton::kv {

StatePool::StatePool(int slot_count, OnReuse on_reuse) : on_reuse_(std::move(on_reuse)) {
  BATON_CHECK(slot_count >= 0, "slot_count={}", slot_count);
  slots_.resize(static_cast<size_t>(slot_count));
  for (int slot = 0; slot < slot_count; ++slot) free(slot);
}

const StatePool::Slot& StatePool::at(StateSlot slot) const {
  BATON_CHECK(slot.value >= 0 && slot.value < slot_count(), "slot={} of {}", slot.value, slot_count());
  return slots_[static_cast<size_t>(slot.value)];
}
StatePool::Slot& StatePool::at(StateSlot slot) { return const_cast<Slot&>(std::as_const(*this).at(slot)); }

void StatePool::free(int slot) {
  auto& freed = slots_[static_cast<size_t>(slot)];
  freed.use = Use::kFree;
  freed.place = free_.insert(free_.end(), slot);
}

void StatePool::forget(Slot& slot) {
  if (slot.prefix) index_.erase(*slot.prefix);
  slot.prefix.reset();
}

std::optional<StateSlot> StatePool::take() {
  auto& from = free_.empty() ? unread_ : free_;
  if (from.empty()) return std::nullopt;
  const StateSlot slot(from.front());
  from.pop_front();
  auto& taken = at(slot);
  forget(taken);
  taken.use = Use::kHeld;
  ++held_;
  if (on_reuse_) on_reuse_(slot);
  return slot;
}

void StatePool::release(StateSlot slot) {
  BATON_CHECK(at(slot).use == Use::kHeld, "slot {} is not held", slot.value);
  --held_;
  free(slot.value);
}

void StatePool::keep(StateSlot slot, const BlockHash& prefix) {
  auto& kept = at(slot);
  BATON_CHECK(kept.use == Use::kHeld, "slot {} is not held", slot.value);
  if (!index_.emplace(prefix, slot.value).second) return release(slot);
  --held_;
  kept.use = Use::kSnapshot;
  kept.prefix = prefix;
  kept.place = unread_.insert(unread_.end(), slot.value);
}

std::optional<StateSlot> StatePool::find(const BlockHash& prefix) const {
  const auto found = index_.find(prefix);
  if (found == index_.end()) return std::nullopt;
  return StateSlot(found->second);
}

void StatePool::pin(StateSlot slot) {
  auto& pinned = at(slot);
  BATON_CHECK(pinned.use == Use::kSnapshot, "slot {} is no snapshot", slot.value);
  if (pinned.pins++ == 0) unread_.erase(pinned.place);
}

void StatePool::unpin(StateSlot slot) {
  auto& unpinned = at(slot);
  BATON_CHECK(unpinned.pins > 0, "slot {} is not pinned", slot.value);
  if (--unpinned.pins > 0) return;
  if (!unpinned.prefix) return free(slot.value);
  unpinned.place = unread_.insert(unread_.end(), slot.value);
}

void StatePool::claim(StateSlot slot) {
  auto& claimed = at(slot);
  BATON_CHECK(claimed.use == Use::kSnapshot && claimed.pins == 0, "slot {} can't be claimed", slot.value);
  unread_.erase(claimed.place);
  forget(claimed);
  claimed.use = Use::kHeld;
  ++held_;
}

void StatePool::forget_all() {
  index_.clear();
  for (int slot = 0; slot < slot_count(); ++slot) {
    auto& forgotten = slots_[static_cast<size_t>(slot)];
    forgotten.prefix.reset();
    if (forgotten.use != Use::kSnapshot || forgotten.pins > 0) continue;
    unread_.erase(forgotten.place);
    free(slot);
  }
}

}  // namespace baton::kv
