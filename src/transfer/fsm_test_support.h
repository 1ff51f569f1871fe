// Small helpers of the state machines' tests.
#pragma once

#include <gtest/gtest.h>

#include "transfer/consumer_fsm.h"
#include "transfer/producer_fsm.h"

namespace baton::transfer::testing {

inline constexpr int kBlockSize = 4;
inline constexpr int kLayers = 2;
inline constexpr int kHeads = 3;
inline constexpr int64_t kBlockBytes = int64_t{kLayers} * 2 * kHeads * kBlockSize * 8 * 2;
inline const kv::CacheLayout kLayout{
    .blocks = kv::uniform_geometry({.layers = kLayers, .kv_heads = kHeads, .head_dim = 8, .block_size = kBlockSize}),
    .states = {1,
               {{.kind = "state", .dtype = "f32", .units = 2, .token_bytes = 64},
                {.kind = "state", .dtype = "f32", .units = 2, .token_bytes = 64}}},
    .block_count = 1000,
    .slot_count = 20};
inline constexpr int64_t kStateBytes = 4 * 64;
inline const auto kHoldings = std::make_shared<const Holdings>(*make_holdings({whole_cache(kLayout)}, 1));
// All of a block or slot, as one of the reads that D makes of a peer with the same layout.
inline const wire::UnitSpan kAllUnits{0, kLayers, 0, kHeads};
inline const wire::UnitSpan kAllState{0, 2, 0, 2};

// The read of blocks [first, first + count) of an offer, or of its state.
inline wire::ReadBlocks read_blocks(uint64_t call, uint64_t offer, uint32_t first, uint32_t count, bool state = false) {
  wire::ReadBlocks read{call, offer, {{0, state, {state ? kAllState : kAllUnits}}}, {}};
  for (uint32_t i = 0; i < count; ++i) read.parts.push_back({0, first + i});
  return read;
}

inline wire::EngineIdentity identity(std::string engine_id = "p") {
  wire::EngineIdentity id;
  id.engine_id = std::move(engine_id);
  id.instance_nonce = 1;
  id.model_fingerprint = "m";
  id.layout = describe(*kHoldings, {});
  id.layer_names = {"0", "1"};
  return id;
}

inline wire::HelloReply hello_reply(bool shm = true) {
  wire::HelloReply reply{identity(), kLayout.block_count, kLayout.slot_count, 30000, std::nullopt};
  if (shm) reply.shm = wire::ShmLocation{"boot", 1, 2, {3, 4}, 5, 6};
  return reply;
}

template <typename T, typename Variant>
std::vector<T> only(const std::vector<Variant>& actions) {
  std::vector<T> found;
  for (const auto& action : actions) {
    if (const auto* match = std::get_if<T>(&action)) found.push_back(*match);
  }
  return found;
}

// The messages of one type among the send actions.
template <typename M, typename Send, typename Variant>
std::vector<M> sent(const std::vector<Variant>& actions) {
  std::vector<M> found;
  for (const auto& action : only<Send>(actions)) {
    if (const auto* match = std::get_if<M>(&action.message)) found.push_back(*match);
  }
  return found;
}

}  // namespace baton::transfer::testing
