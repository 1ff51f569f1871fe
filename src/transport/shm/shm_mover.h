// Non-temporal copy with the checksum taken on the way, for memory mapped from a peer and for received frames.
#pragma once

#include "transport/mover.h"
#include "transport/shm/hash_copy.h"

namespace baton::transport {

class ShmMover final : public Mover {
 public:
  explicit ShmMover(tensor::Isa isa = tensor::detect_isa()) : hash_copy_(hash_copy_for(isa)) {}
  Result<void> move(const Moves& moves, std::span<const std::byte> source, std::span<std::byte> destination) override;

 private:
  HashCopy hash_copy_;
  std::vector<CopyRun> copies_;  // of the unit at hand
};

}  // namespace baton::transport
