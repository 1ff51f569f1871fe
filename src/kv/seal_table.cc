#include "kv/seal_table.h"

#include <atomic>

#include "base/check.h"
#include "base/checks.h"
#include "base/hash.h"

namespace baton::kv {
namespace {

constexpr int kTokensAt = 8;
constexpr int kChecksumsAt = 16;

// The table is shared between processes, so its words are read and written by these and by nothing else.
// (std::atomic_ref of a const object came only after C++23.)
uint64_t load64(const std::byte* at, int order) {
  const auto* word = reinterpret_cast<const uint64_t*>(at);
  return order == __ATOMIC_ACQUIRE ? __atomic_load_n(word, __ATOMIC_ACQUIRE) : __atomic_load_n(word, __ATOMIC_RELAXED);
}
uint32_t load32(const std::byte* at) {
  return __atomic_load_n(reinterpret_cast<const uint32_t*>(at), __ATOMIC_RELAXED);
}
void store64(std::byte* at, uint64_t value) {
  __atomic_store_n(reinterpret_cast<uint64_t*>(at), value, __ATOMIC_RELAXED);
}
void store32(std::byte* at, uint32_t value) {
  __atomic_store_n(reinterpret_cast<uint32_t*>(at), value, __ATOMIC_RELAXED);
}
void publish64(std::byte* at, uint64_t value) {
  __atomic_store_n(reinterpret_cast<uint64_t*>(at), value, __ATOMIC_RELEASE);
}
// Orders plain reads of block bytes before the generation is read again. ThreadSanitizer knows no fences; for it the
// acquire load that follows has to do.
void read_fence() {
#if !defined(__SANITIZE_THREAD__) && !__has_feature(thread_sanitizer)
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}
void write_fence() {
#if !defined(__SANITIZE_THREAD__) && !__has_feature(thread_sanitizer)
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

uint64_t unit_checksum(const PagedGeometry& geometry, const std::byte* block, int entry, int unit, int tokens) {
  if (!checks_on()) return 0;
  const auto& kept = geometry.entries()[static_cast<size_t>(entry)];
  const auto bytes = static_cast<size_t>(kept.token_bytes * tokens);
  if (kept.parts == 1) return xxh3_64({block + geometry.unit_offset(entry, 0, unit), bytes});
  Xxh3Stream hash;
  for (int part = 0; part < kept.parts; ++part) hash.update({block + geometry.unit_offset(entry, part, unit), bytes});
  return hash.digest();
}

Result<SealReader> SealReader::over(std::span<const std::byte> memory, int units_per_block, int64_t block_count) {
  const bool fits = units_per_block > 0 && block_count >= 0 &&
                    block_count <= static_cast<int64_t>(memory.size()) / record_bytes(units_per_block);
  if (!fits || reinterpret_cast<uintptr_t>(memory.data()) % 64 != 0) {
    return fail(Code::kInvalidArgument,
                "a seal table of {} bytes, aligned to 64, is too small for {} blocks of {} units", memory.size(),
                block_count, units_per_block);
  }
  return SealReader(memory.data(), units_per_block, block_count);
}

uint64_t SealReader::generation(int64_t block) const { return load64(record(block), __ATOMIC_ACQUIRE); }

Result<Seal> SealReader::read(int64_t block, std::span<uint64_t> checksums) const {
  BATON_CHECK(block >= 0 && block < block_count_ && checksums.size() == static_cast<size_t>(units_));
  const std::byte* at = record(block);
  const uint64_t before = load64(at, __ATOMIC_ACQUIRE);
  const uint32_t tokens = load32(at + kTokensAt);
  for (size_t u = 0; u < checksums.size(); ++u) checksums[u] = load64(at + kChecksumsAt + 8 * u, __ATOMIC_RELAXED);
  if (generation_is_open(before) || tokens == 0 || !unchanged(block, before)) {
    return fail(Code::kFailedPrecondition, "block {} is not sealed (generation {})", block, before);
  }
  return Seal{before, static_cast<int>(tokens)};
}

bool SealReader::unchanged(int64_t block, uint64_t expected) const {
  read_fence();
  return generation(block) == expected;
}

Result<SealTable> SealTable::over(std::span<std::byte> memory, const PagedGeometry& geometry,
                                  std::span<const std::byte> arena) {
  if (geometry.block_bytes() <= 0) return fail(Code::kInvalidArgument, "the KV geometry has no bytes per block");
  const int64_t blocks = static_cast<int64_t>(arena.size()) / geometry.block_bytes();
  BATON_TRY_ASSIGN(const auto reader, SealReader::over(memory, geometry.units_per_block(), blocks));
  return SealTable(memory.data(), geometry, arena.data(), reader);
}

bool SealTable::is_sealed(int64_t block, int tokens) const {
  return !generation_is_open(load64(record(block), __ATOMIC_RELAXED)) &&
         load32(record(block) + kTokensAt) == static_cast<uint32_t>(tokens);
}

Seal SealTable::seal(int64_t block, int tokens) {
  BATON_CHECK(block >= 0 && block < block_count() && tokens >= 0 && tokens <= geometry_.block_size(),
              "block={} tokens={}", block, tokens);
  std::byte* at = record(block);
  const uint64_t before = load64(at, __ATOMIC_RELAXED);
  if (is_sealed(block, tokens)) return {before, tokens};
  const uint64_t open = before | 1;
  store64(at, open);
  write_fence();
  store32(at + kTokensAt, static_cast<uint32_t>(tokens));
  const std::byte* bytes = arena_ + block * geometry_.block_bytes();
  std::byte* checksum = at + kChecksumsAt;
  for (int entry = 0; tokens > 0 && entry < geometry_.entry_count(); ++entry) {
    for (int unit = 0; unit < geometry_.entries()[static_cast<size_t>(entry)].units; ++unit, checksum += 8) {
      store64(checksum, unit_checksum(geometry_, bytes, entry, unit, tokens));
    }
  }
  publish64(at, open + 1);
  return {open + 1, tokens};
}

void SealTable::reopen(int64_t block) {
  BATON_CHECK(block >= 0 && block < block_count(), "block={}", block);
  std::byte* at = record(block);
  store64(at, load64(at, __ATOMIC_RELAXED) | 1);
  write_fence();  // whatever is written into the block from here is seen only with the open generation
}

}  // namespace baton::kv
