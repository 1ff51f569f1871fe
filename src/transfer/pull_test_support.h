// Two engines' worth of connectors over real memory and sockets.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "transfer/holdings.h"
#include "transfer/pull_connector.h"

namespace baton::transfer::testing {

inline constexpr int kLayers = 6;
inline constexpr int kHeads = 3;
inline constexpr int kBlockSize = 16;
inline const kv::PagedGeometry kGeometry =
    kv::uniform_geometry({.layers = kLayers, .kv_heads = kHeads, .head_dim = 64, .block_size = kBlockSize});
inline constexpr int64_t kBlocks = 64;
inline constexpr int64_t kSlots = 5;
inline const kv::CacheLayout kLayout{
    .blocks = kGeometry,
    .states = {1, std::vector(3, kv::CacheEntry{.kind = "state", .dtype = "f32", .units = 4, .token_bytes = 4096})},
    .block_count = kBlocks,
    .slot_count = kSlots};

inline Result<transport::SharedArena> make_arena() { return create_kv_arena(std::vector{whole_cache(kLayout)}); }

inline PullConnectorOptions options(std::string engine_id) {
  PullConnectorOptions o;
  o.identity.engine_id = std::move(engine_id);
  o.identity.model_fingerprint = "m";
  o.identity.layer_names = {"0", "1", "2", "3", "4", "5"};
  o.ranks = {whole_cache(kLayout)};
  return o;
}

inline std::vector<BlockId> block_ids(std::vector<int32_t> ids) {
  std::vector<BlockId> blocks;
  for (int32_t id : ids) blocks.push_back(BlockId(id));
  return blocks;
}

inline void fill(std::span<std::byte> bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    const uint64_t value = random();
    std::memcpy(bytes.data() + at, &value, 8);
  }
}

// The first `tokens` tokens of two blocks are the same.
inline bool same_tokens(std::span<const std::byte> a, int64_t block_a, std::span<const std::byte> b, int64_t block_b,
                        int tokens) {
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int kv = 0; kv < 2; ++kv) {
      for (int head = 0; head < kHeads; ++head) {
        const int64_t at = kGeometry.unit_offset(layer, kv, head);
        if (std::memcmp(a.data() + kLayout.block_offset(block_a) + at, b.data() + kLayout.block_offset(block_b) + at,
                        static_cast<size_t>(tokens) * 64 * 2) != 0) {
          return false;
        }
      }
    }
  }
  return true;
}

// A bit turns by itself, as in bad memory: no thread wrote it, and ThreadSanitizer is not to think so.
__attribute__((no_sanitize("thread"))) inline void rot(std::byte& byte) { reinterpret_cast<unsigned char&>(byte) ^= 1; }

template <typename Poll>
auto wait_for(Poll poll, std::chrono::milliseconds limit = std::chrono::seconds(10)) {
  const auto until = std::chrono::steady_clock::now() + limit;
  auto found = poll();
  while (found.empty() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    found = poll();
  }
  return found;
}

struct Pair {
  explicit Pair(PullConnectorOptions p = options("p"), PullConnectorOptions d = options("d"))
      : prefill(*make_arena()), decode(*make_arena()) {
    fill(prefill.data(), 1);
    producer = *make_kv_producer(std::move(p), prefill);
    consumer = *make_kv_consumer(std::move(d), decode.data());
  }
  // Offers blocks 3, 9, 4, ... of P with `tokens` tokens.
  wire::KvTransferParams offer(std::string request, int64_t tokens) {
    std::vector<BlockId> blocks;
    for (int64_t i = 0; i * kBlockSize < tokens; ++i) blocks.push_back(remote(i));
    return producer->offer({std::move(request), blocks, tokens, 42});
  }
  static BlockId remote(int64_t i) { return BlockId(static_cast<int32_t>((3 + i * 6) % kBlocks + i * 6 / kBlocks)); }
  static BlockId local(int64_t i) { return BlockId(static_cast<int32_t>(kBlocks - 1 - i)); }
  Pull pull(std::string request, wire::KvTransferParams params, int64_t tokens, int64_t skip = 0) {
    Pull p{std::move(request), std::move(params), {}, tokens, skip};
    for (int64_t i = 0; i * kBlockSize < tokens; ++i) p.blocks.push_back(local(i));
    return p;
  }
  PullResult result() {
    auto results = wait_for([&] { return consumer->poll_completed(); });
    if (results.empty()) return {.outcome = fail(Code::kDeadlineExceeded, "the test saw no result")};
    EXPECT_EQ(results.size(), 1u);
    return results[0];
  }
  std::vector<std::string> released() {
    return wait_for([&] { return producer->poll_released(); });
  }
  bool arrived(int64_t tokens, int64_t skip = 0) {
    for (int64_t i = skip / kBlockSize; i * kBlockSize < tokens; ++i) {
      const auto in_block = static_cast<int>(std::min<int64_t>(kBlockSize, tokens - i * kBlockSize));
      if (!same_tokens(prefill.data(), remote(i).value, decode.data(), local(i).value, in_block)) return false;
    }
    return true;
  }

  transport::SharedArena prefill, decode;
  std::unique_ptr<KvProducer> producer;
  std::unique_ptr<KvConsumer> consumer;
};

}  // namespace baton::transfer::testing
