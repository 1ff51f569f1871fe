// The twin: plain copies and the library's hash, with a hook that spoils bytes between the two.
#pragma once

#include <functional>

#include "transport/mover.h"

namespace baton::transport {

class MemoryMover final : public Mover {
 public:
  // Called with each stored run before its unit is hashed.
  using Spoil = std::function<void(size_t unit_index, size_t run_of_unit, std::span<std::byte> stored)>;
  explicit MemoryMover(Spoil spoil = {}) : spoil_(std::move(spoil)) {}
  Result<void> move(const Moves& moves, std::span<const std::byte> source, std::span<std::byte> destination) override;

 private:
  Spoil spoil_;
};

}  // namespace baton::transport
