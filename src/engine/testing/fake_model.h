// A tiny model for tests of the engine: its logits are a hash of every key and value that the block table leads to.
//
// It writes and reads the cache as a real model does, so a wrong table, a block reused too early, a missed or doubled
// position or KV of another request gives other tokens. With state layers the logits also depend on a chain of hashes
// over the tokens, kept in the sequence's slot: a wrong or stale slot, one that was not restored, or a token taken
// twice shows in the same way. Rows are independent, as the exactness contract asks.
//
// It is a model of ranks, too: layers are cut over stages, heads and the vocabulary's columns over a team, positions
// over context ranks. What a rank can't see it gets as a real one does, so that every grid gives the tokens of one
// rank.
#pragma once

#include <atomic>
#include <memory>

#include "models/model.h"

namespace baton::engine::testing {

struct FakeModelOptions {
  int vocab_size = 97;
  int layers = 2;
  int kv_heads = 2;
  int head_dim = 8;
  int max_positions = 4096;
  float spread = 4;  // logits lie in [-spread, spread]
  // Recurrent state: a chain over the tokens in each head of each layer. 0: none.
  int state_layers = 0;
  int state_heads = 2;
  int64_t throw_at_step = -1;  // the model dies at this step
  int throw_at_rank = -1;      // only this rank of its replica; -1: all
  int64_t nan_at_token = -1;   // a context that ends in this token gives logits that are not numbers
  // Counts forward calls, where a test wants to know.
  std::shared_ptr<std::atomic<int64_t>> steps;
  // While true, forward waits from that step on: holds the engine inside a step.
  std::shared_ptr<std::atomic<bool>> hold;
  int64_t hold_from_step = 0;
};

std::unique_ptr<models::Model> make_fake_model(FakeModelOptions options = {}, models::RankSetup rank = {});

}  // namespace baton::engine::testing
