// The frames of one part of a read: P's answer to ReadBlocks, one frame of about a megabyte after the other. Reads the
// seal table and the arena, writes nothing, waits for nothing: the caller sends. The producer's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transfer/producer_fsm.h"
#include "transfer/rank_seals.h"

namespace baton::transfer {

class PartFrames {
 public:
  struct Frame {
    wire::BlockData data;
    std::vector<std::span<const std::byte>> payload;  // in the arena
    int64_t payload_bytes = 0;
  };

  // Of send.parts[index]. kUnavailable: the block was reopened since it was offered. All arguments outlive the frames.
  static Result<PartFrames> of(const Holdings& holdings, const RankSeals& seals, std::span<const std::byte> arena,
                               const SendBlocks& send, size_t index);
  // Nothing: that was all.
  std::optional<Frame> next();

 private:
  PartFrames(const Holdings& holdings, const SendBlocks& send, size_t index)
      : holdings_(&holdings), send_(&send), index_(index) {}

  const Holdings* holdings_;
  const SendBlocks* send_;
  size_t index_;
  std::span<const std::byte> block_;
  std::vector<uint64_t> checksums_;  // of all units of the block
  size_t span_ = 0;                  // the next frame begins at
  uint32_t entry_ = 0;               // this entry of this span
};

}  // namespace baton::transfer
