// Recurrent state: where chunks end so that it can be kept, what is copied there, and which slots a sequence holds.
#include <algorithm>
#include <limits>

#include "engine/scheduler/scheduler.h"

namespace baton::engine {

// Another engine computes the last given token itself, for its logits, and so wants the state before it. Of one token
// there is none before it.
bool Scheduler::hands_over_state(const Sequence& sequence) const {
  return keeps_state() && sequence.remote_decode && sequence.given_count > 1;
}

// The longest of the cached beginnings whose state was kept. What is to be handed over must still be ahead.
Scheduler::Prefix Scheduler::with_state(Sequence& sequence, std::vector<BlockId> blocks) const {
  Prefix prefix{.blocks = std::move(blocks)};
  const int64_t size = blocks_.block_size();
  prefix.seen_tokens = static_cast<int64_t>(prefix.blocks.size()) * size;
  const int64_t tokens_max = hands_over_state(sequence) ? sequence.given_count - 1 : prefix.seen_tokens;
  auto count = std::min(prefix.seen_tokens, tokens_max) / size;
  for (; count > 0; --count) {
    prefix.snapshot = states_.find(sequence.blocks.hashes[static_cast<size_t>(count - 1)]);
    if (prefix.snapshot) break;
  }
  prefix.blocks.resize(static_cast<size_t>(count));
  return prefix;
}

int Scheduler::state_slots_needed(const Sequence& sequence) const {
  if (!keeps_state()) return 0;
  return hands_over_state(sequence) ? 2 : 1;
}

bool Scheduler::state_fits(const Sequence& sequence) const {
  return states_.available() >= state_slots_needed(sequence);
}

// The snapshot is copied, so that others find it again; only where no slot is left beside it is it taken itself.
void Scheduler::begin_state(Sequence& sequence, const Prefix& prefix) {
  if (!keeps_state()) return;
  auto& state = sequence.state;
  const int needed = state_slots_needed(sequence);
  if (prefix.snapshot && !states_.pinned(*prefix.snapshot) && states_.available() == needed) {
    states_.claim(*prefix.snapshot);
    state.slot = prefix.snapshot;
  } else {
    if (prefix.snapshot) states_.pin(*prefix.snapshot);
    state.restore_from = prefix.snapshot;
    state.slot = states_.take();
  }
  if (needed == 2) state.handoff = states_.take();
}

void Scheduler::release_state(Sequence& sequence) {
  auto& state = sequence.state;
  if (state.restore_from) states_.unpin(*state.restore_from);
  if (state.snapshot) states_.release(state.snapshot->slot);
  if (state.handoff) states_.release(*state.handoff);
  if (state.slot) states_.release(*state.slot);
  state = {};
}

// The next position at which a step must begin.
int64_t Scheduler::next_state_cut(const Sequence& sequence) const {
  int64_t next = std::numeric_limits<int64_t>::max();
  const auto consider = [&](int64_t position) {
    if (position > sequence.computed) next = std::min(next, position);
  };
  if (hands_over_state(sequence)) consider(sequence.given_count - 1);
  if (!blocks_.shares(sequence.blocks)) return next;
  const int64_t size = blocks_.block_size();
  consider((sequence.given_count - 1) / size * size);
  consider(sequence.state.seen_before);
  if (const int64_t interval = snapshot_interval(); interval > 0) {
    consider((sequence.computed / interval + 1) * interval);
  }
  return next;
}

// In whole blocks.
int64_t Scheduler::snapshot_interval() const {
  const int64_t size = blocks_.block_size();
  return (options_.state_snapshot_interval + size - 1) / size * size;
}

// The state of the first `computed` tokens is worth a snapshot.
bool Scheduler::keep_here(const Sequence& sequence) const {
  const int64_t position = sequence.computed, size = blocks_.block_size();
  if (position == 0 || position % size != 0 || !blocks_.shares(sequence.blocks)) return false;
  const int64_t interval = snapshot_interval();
  return position == (sequence.given_count - 1) / size * size || position == sequence.state.seen_before ||
         (interval > 0 && position % interval == 0);
}

void Scheduler::add_state(Sequence& sequence, SequenceStep& step) {
  auto& state = sequence.state;
  step.state_slot = state.slot;
  if (state.restore_from) step.state_copies.push_back({*state.restore_from, *state.slot});
  if (state.handoff && !state.handoff_made && sequence.computed == sequence.given_count - 1) {
    step.state_copies.push_back({*state.slot, *state.handoff});
    state.handoff_made = true;
  }
  if (!keep_here(sequence)) return;
  const auto& prefix = blocks_.prefix_hash(sequence.blocks, sequence.tokens, sequence.computed / blocks_.block_size());
  if (states_.find(prefix)) return;
  const auto slot = states_.take();
  if (!slot) return;
  step.state_copies.push_back({*state.slot, *slot});
  state.snapshot = {*slot, prefix};
}

// The step has run.
void Scheduler::settle_state(Sequence& sequence) {
  auto& state = sequence.state;
  if (state.restore_from) states_.unpin(*state.restore_from);
  if (state.snapshot) states_.keep(state.snapshot->slot, state.snapshot->prefix);
  state.restore_from.reset();
  state.snapshot.reset();
}

}  // namespace baton::engine
