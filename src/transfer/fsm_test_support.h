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

inline wire::EngineIdentity identity(std::string engine_id = "p") {
  wire::EngineIdentity id;
  id.engine_id = std::move(engine_id);
  id.instance_nonce = 1;
  id.model_fingerprint = "m";
  id.layout = {.block_size = kBlockSize, .entries = kLayout.blocks.entries(), .states = kLayout.states.entries()};
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
