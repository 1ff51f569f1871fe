// Slots of recurrent state: those that sequences and hand-offs hold, and snapshots of prefixes. Owned by the engine
// thread; pure logic, no memory is touched.
//
// A snapshot is the state at the end of a chain of full blocks and has the last block's hash for a name. It stays until
// its slot is needed for something else; the least recently used goes first. A pinned one is being read and stays.
#pragma once

#include <functional>
#include <list>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/strong_id.h"
#include "kv/block_hash.h"

namespace baton::kv {

using StateSlot = StrongId<struct StateSlotTag, int32_t>;

class StatePool {
 public:
  using OnReuse = std::function<void(StateSlot)>;
  // slot_count 0: the model keeps no recurrent state. on_reuse is called when a slot is about to get new contents.
  explicit StatePool(int slot_count, OnReuse on_reuse = {});

  int slot_count() const { return static_cast<int>(slots_.size()); }
  int held() const { return held_; }
  int snapshots() const { return static_cast<int>(index_.size()); }
  // Slots that take() would give, one after the other: free ones, and snapshots that nobody reads.
  int available() const { return static_cast<int>(free_.size() + unread_.size()); }

  // A slot for new contents, held by the caller.
  std::optional<StateSlot> take();
  void release(StateSlot slot);
  // A held slot becomes the snapshot of a prefix. Where there is one already, the slot is released.
  void keep(StateSlot slot, const BlockHash& prefix);

  std::optional<StateSlot> find(const BlockHash& prefix) const;
  bool pinned(StateSlot slot) const { return at(slot).pins > 0; }
  // Of a snapshot: counts as its use.
  void pin(StateSlot slot);
  void unpin(StateSlot slot);
  // An unpinned snapshot becomes the caller's, with its contents.
  void claim(StateSlot slot);
  // No snapshot is found any more. Pinned ones are freed when they are unpinned.
  void forget_all();

 private:
  enum class Use : uint8_t { kFree, kHeld, kSnapshot };
  struct Slot {
    Use use = Use::kFree;
    int pins = 0;
    std::optional<BlockHash> prefix;  // of a snapshot that can be found
    std::list<int>::iterator place;   // in free_, or in unread_
  };
  const Slot& at(StateSlot slot) const;
  Slot& at(StateSlot slot);
  void free(int slot);
  void forget(Slot& slot);

  const OnReuse on_reuse_;
  std::vector<Slot> slots_;
  std::list<int> free_;    // next to be taken first
  std::list<int> unread_;  // unpinned snapshots, least recently used first
  std::unordered_map<BlockHash, int, BlockHashHasher> index_;
  int held_ = 0;
};

}  // namespace baton::kv
