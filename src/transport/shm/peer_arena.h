// Another process's SharedArena, mapped read-only.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "transport/shared_arena.h"

namespace baton::transport {

class PeerArena {
 public:
  // kUnavailable, with the reason, when it can't be opened from here (another host, container or user) or isn't the
  // arena that `location` speaks of: then use TCP.
  static Result<PeerArena> map(const wire::ShmLocation& location);
  ~PeerArena();
  PeerArena(PeerArena&& other) noexcept;
  PeerArena& operator=(PeerArena&& other) noexcept;

  std::span<const std::byte> data() const { return {base_ + header_.data_offset, header_.data_bytes}; }
  std::span<const std::byte> table() const { return {base_ + header_.table_offset, header_.table_bytes}; }

 private:
  PeerArena() = default;

  const std::byte* base_ = nullptr;
  size_t mapped_bytes_ = 0;
  ArenaHeader header_{};
};

}  // namespace baton::transport
