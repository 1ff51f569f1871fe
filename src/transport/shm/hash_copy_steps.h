// The loops shared by the versions of hash_copy. Included after xxhash.h with XXH_INLINE_ALL, so that the hash is
// compiled for the including file's instruction set.
#pragma once

#include <algorithm>
#include <cstring>

#include "transport/shm/hash_copy.h"

namespace baton::transport {
namespace {

inline constexpr size_t kStripe = 64;
// XXH3 scrambles its state after every block of so many stripes of its default secret.
inline constexpr size_t kBlockStripes = (XXH_SECRET_DEFAULT_SIZE - kStripe) / 8;
inline constexpr size_t kStepBytes = 4096;
// Memory is asked for so far ahead: a run of 2 KB still profits, and the first-level cache holds it.
inline constexpr size_t kAheadBytes = 512;

// XXH3-64 of whole stripes, more than 240 bytes in all, one at a time. The state machine is that of XXH3's published
// description; its two vector steps are the library's own.
class StripeHash {
 public:
  explicit StripeHash(size_t stripes) : left_(stripes - 1), bytes_(stripes * kStripe) {}
  // Stripes that may be added before the state is scrambled or the last one is due.
  size_t run() const { return std::min(left_, kBlockStripes - in_block_); }
  void add(const std::byte* stripe, size_t ahead) {
    XXH3_accumulate_512(accumulators_, stripe, XXH3_kSecret + 8 * (in_block_ + ahead));
  }
  void added(size_t stripes) {
    left_ -= stripes;
    in_block_ += stripes;
    if (in_block_ < kBlockStripes) return;
    XXH3_scrambleAcc(accumulators_, XXH3_kSecret + XXH_SECRET_DEFAULT_SIZE - kStripe);
    in_block_ = 0;
  }
  uint64_t last(const std::byte* stripe) {
    XXH3_accumulate_512(accumulators_, stripe, XXH3_kSecret + XXH_SECRET_DEFAULT_SIZE - kStripe - 7);
    return XXH3_mergeAccs(accumulators_, XXH3_kSecret + XXH_SECRET_MERGEACCS_START, bytes_ * XXH_PRIME64_1);
  }

 private:
  alignas(64) xxh_u64 accumulators_[XXH_ACC_NB] = XXH3_INIT_ACC;
  size_t left_;  // stripes before the last one
  size_t in_block_ = 0;
  size_t bytes_;
};

// Runs of whole stripes to aligned places: each stripe is stored and hashed while the ones ahead are on their way.
// stripe(from, to or null, scratch): what it stores at `to` and at `scratch` comes from one load.
template <typename Stripe>
uint64_t hash_copy_stripes(std::span<const CopyRun> runs, const std::byte* next, size_t bytes, Stripe stripe) {
  alignas(64) std::byte scratch[kStripe * kBlockStripes];
  StripeHash hash(bytes / kStripe);
  uint64_t result = 0;
  for (size_t r = 0; r < runs.size(); ++r) {
    const CopyRun& run = runs[r];
    const std::byte* const after = r + 1 < runs.size() ? runs[r + 1].from : next;
    for (size_t at = 0; at < run.bytes;) {
      const size_t count = std::min(hash.run(), (run.bytes - at) / kStripe);
      if (run.to == nullptr) {
        for (size_t i = 0; i < count; ++i) hash.add(run.from + at + i * kStripe, i);
      } else {
        for (size_t i = 0; i < count; ++i) {
          const size_t here = at + i * kStripe, ahead = here + kAheadBytes;
          __builtin_prefetch(ahead < run.bytes ? run.from + ahead : after + (ahead - run.bytes), 0, 0);
          stripe(run.from + here, run.to + here, scratch + i * kStripe);
          hash.add(scratch + i * kStripe, i);
        }
      }
      if (count > 0) {
        hash.added(count);
        at += count * kStripe;
        continue;
      }
      if (run.to != nullptr) stripe(run.from + at, run.to + at, scratch);
      result = hash.last(run.to != nullptr ? scratch : run.from + at);
      at += kStripe;
    }
  }
  return result;
}

// Anything else: through a scratch in the first-level cache.
inline uint64_t hash_copy_pieces(std::span<const CopyRun> runs) {
  alignas(64) std::byte scratch[kStepBytes];
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_64bits_reset(&state);
  for (const CopyRun& run : runs) {
    if (run.to == nullptr) {
      XXH3_64bits_update(&state, run.from, run.bytes);
      continue;
    }
    for (size_t at = 0; at < run.bytes; at += kStepBytes) {
      const size_t bytes = std::min(kStepBytes, run.bytes - at);
      std::memcpy(scratch, run.from + at, bytes);
      std::memcpy(run.to + at, scratch, bytes);
      XXH3_64bits_update(&state, scratch, bytes);
    }
  }
  return XXH3_64bits_digest(&state);
}

template <typename Stripe>
uint64_t hash_copy_by(std::span<const CopyRun> runs, const std::byte* next, Stripe stripe) {
  size_t bytes = 0, uneven = 0;
  for (const CopyRun& run : runs) {
    bytes += run.bytes;
    uneven |= run.bytes | reinterpret_cast<uintptr_t>(run.to);
  }
  if (bytes <= XXH3_MIDSIZE_MAX || uneven % kStripe != 0) return hash_copy_pieces(runs);
  return hash_copy_stripes(runs, next, bytes, stripe);
}

}  // namespace
}  // namespace baton::transport
