// What D has granted to one push: its blocks, for the KV of one prompt, and which of their entries have come. Pure: no
// sockets, no clock, no memory; the caller stores bytes where it is told and reports whether their checksums held.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/cache_layout.h"
#include "transfer/connector.h"
#include "transport/mover.h"
#include "wire/handoff_messages.h"

namespace baton::transfer {

class Grant {
 public:
  // pull.blocks cover pull.token_count tokens; the first pull.skip_tokens are here. `layout` outlives the grant.
  Grant(Pull pull, const kv::CacheLayout& layout);

  const Pull& pull() const { return pull_; }
  // P has computed this prompt, and what it has to give is what is wanted: else kMismatch.
  Result<void> check(const wire::PushOpen& open) const;
  wire::PushOpenReply answer() const;

  // Where a frame's payload belongs. An error, and nothing to store, for what is not of this grant: another size,
  // blocks that are not wanted. What came before may come again.
  Result<transport::Moves> place(const wire::PushData& data, int64_t payload_bytes) const;
  // The payload was stored and verified.
  void stored(const wire::PushData& data, int64_t payload_bytes);

  bool complete() const { return missing_ == 0; }
  // Tokens from the start that are here: the longest prefix of blocks of which nothing misses.
  int64_t valid_tokens() const;
  bool state_valid() const { return pull_.state_slot.has_value() && state_missing_ == 0; }
  int64_t bytes() const { return bytes_; }

 private:
  int tokens_of(uint32_t block) const;
  std::vector<bool>::reference mark(uint32_t block, uint32_t entry);
  Result<void> check_frame(const wire::PushData& data, int64_t payload_bytes) const;

  Pull pull_;
  const kv::CacheLayout& layout_;
  uint32_t first_block_ = 0, end_block_ = 0;  // wanted
  std::vector<bool> marks_;                   // [block - first_block_][entry]: is here
  std::vector<bool> state_marks_;             // [layer]
  int64_t missing_ = 0;                       // entries, those of the state included
  int64_t state_missing_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace baton::transfer
