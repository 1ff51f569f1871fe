// Generation and checksums of every block, in memory given from outside so that another process can map it.
//
// The producer's thread writes; readers may sit on any thread or in any process, and copy blocks without a lock: they
// read the generation before and after, and reject the copy unless both are the sealed one they were promised.
//
// Layout, little-endian: one record per block, record_bytes(units) apart, aligned to 64:
//   0   u64 generation   even: sealed; odd: open, its bytes may change. It only grows.
//   8   u32 tokens       sealed: the first `tokens` tokens of every unit are covered
//   12  u32 reserved     0
//   16  u64 checksum[units]   XXH3-64 of unit u: the first `tokens` tokens of its one part, or of its keys and values
// A zeroed table is valid: every block at generation 0 with 0 tokens, which is never offered.
//
// Cost: sealing reads the block once (XXH3: over 20 GB/s per core, bound by memory); a record of SmolLM2's 90 units is
// 0.2 % of its 369 kB block.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "kv/geometry.h"

namespace baton::kv {

inline constexpr bool generation_is_open(uint64_t generation) { return (generation & 1) != 0; }

struct Seal {
  uint64_t generation = 0;
  int tokens = 0;
  bool operator==(const Seal&) const = default;
};

// XXH3-64 of one unit whose block starts at `block`, over its first `tokens` tokens.
uint64_t unit_checksum(const PagedGeometry& geometry, const std::byte* block, int entry, int unit, int tokens);

// Reads a table, also one that another process is writing.
class SealReader {
 public:
  // kInvalidArgument when the memory is too small for block_count records or not aligned to 64 bytes.
  static Result<SealReader> over(std::span<const std::byte> memory, int units_per_block, int64_t block_count);
  static int64_t record_bytes(int units_per_block) { return (16 + int64_t{8} * units_per_block + 63) / 64 * 64; }
  static int64_t table_bytes(int units_per_block, int64_t block_count) {
    return record_bytes(units_per_block) * block_count;
  }

  int64_t block_count() const { return block_count_; }
  uint64_t generation(int64_t block) const;  // acquire
  // The seal and its checksums (units_per_block of them), as one consistent whole. kFailedPrecondition when the block
  // is open, or was opened while this read.
  Result<Seal> read(int64_t block, std::span<uint64_t> checksums) const;
  // True when `generation` still holds after what was copied before this call.
  bool unchanged(int64_t block, uint64_t generation) const;

 private:
  friend class SealTable;
  SealReader(const std::byte* memory, int units, int64_t blocks)
      : memory_(memory), units_(units), block_count_(blocks) {}
  const std::byte* record(int64_t block) const { return memory_ + block * record_bytes(units_); }

  const std::byte* memory_;
  int units_;
  int64_t block_count_;
};

// The writer. One thread.
class SealTable {
 public:
  // memory: SealReader::table_bytes, 64-byte aligned, zeroed. `arena` holds block_count blocks of `geometry`.
  static Result<SealTable> over(std::span<std::byte> memory, const PagedGeometry& geometry,
                                std::span<const std::byte> arena);

  const SealReader& reader() const { return reader_; }
  int64_t block_count() const { return reader_.block_count(); }
  // Checksums the block's first `tokens` tokens (0 to block_size) under a new generation. A block that is sealed with
  // that many tokens already is left alone. Its bytes must stand still from here until reopen(). With 0 tokens the
  // generation moves on and nothing is there to be read.
  Seal seal(int64_t block, int tokens);
  bool is_sealed(int64_t block, int tokens) const;
  // The block's bytes may change from here on: copies begun before will be rejected. Idempotent.
  void reopen(int64_t block);

 private:
  SealTable(std::byte* memory, const PagedGeometry& geometry, const std::byte* arena, SealReader reader)
      : memory_(memory), geometry_(geometry), arena_(arena), reader_(reader) {}
  std::byte* record(int64_t block) const {
    return memory_ + block * SealReader::record_bytes(geometry_.units_per_block());
  }

  std::byte* memory_;
  PagedGeometry geometry_;
  const std::byte* arena_;
  SealReader reader_;
};

}  // namespace baton::kv
