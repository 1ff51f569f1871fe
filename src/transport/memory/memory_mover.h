// The twin: plain copies and the library's hash, with a hook that spoils bytes between the two.
#pragma once

#include <functional>

#include "transport/mover.h"

namespace baton::transport {

class MemoryMover final : public Mover {
 public:
  // Called with each unit's stored bytes (keys, then values) before they are hashed.
  using Spoil = std::function<void(size_t unit_index, std::span<std::byte> keys, std::span<std::byte> values)>;
  explicit MemoryMover(Spoil spoil = {}) : spoil_(std::move(spoil)) {}
  Result<void> move(std::span<const UnitMove> units, std::span<const std::byte> source,
                    std::span<std::byte> destination) override;

 private:
  Spoil spoil_;
};

}  // namespace baton::transport
