// Memory of an engine that another process of the same host may map read-only: the KV arena and its seal table.
//
// A memfd, so it dies with the process and has no name to clash. Its size is sealed: a reader's mapping can't be cut
// under it (SIGBUS). Pages are zeroed by the kernel when first touched.
// Layout, little-endian: header page, then data and table, each from a 2 MiB border.
//   0  u8[8] "BATONKV1"   8  u64 nonce[2]   24 u64 data offset   32 u64 data bytes   40 u64 table offset
//   48 u64 table bytes
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "wire/handoff_messages.h"

namespace baton::transport {

struct ArenaHeader {
  std::array<char, 8> magic;
  std::array<uint64_t, 2> nonce;
  uint64_t data_offset, data_bytes, table_offset, table_bytes;
};
inline constexpr std::array<char, 8> kArenaMagic = {'B', 'A', 'T', 'O', 'N', 'K', 'V', '1'};
inline constexpr std::string_view kArenaName = "baton-kv";

class SharedArena {
 public:
  struct Sizes {
    int64_t data_bytes = 0;
    int64_t table_bytes = 0;
  };
  // kResourceExhausted when the system has no such memory.
  static Result<SharedArena> create(Sizes sizes);
  ~SharedArena();
  SharedArena(SharedArena&& other) noexcept;
  SharedArena& operator=(SharedArena&& other) noexcept;

  std::span<std::byte> data() { return {base_ + header().data_offset, header().data_bytes}; }
  std::span<std::byte> table() { return {base_ + header().table_offset, header().table_bytes}; }
  // For HelloReply: where a peer finds this arena, and how it knows it again.
  wire::ShmLocation location() const;

 private:
  SharedArena() = default;
  const ArenaHeader& header() const { return *reinterpret_cast<const ArenaHeader*>(base_); }

  std::byte* base_ = nullptr;
  size_t mapped_bytes_ = 0;
  int fd_ = -1;
};

// Of this host's running kernel; empty where it can't be read.
std::string boot_id();

}  // namespace baton::transport
