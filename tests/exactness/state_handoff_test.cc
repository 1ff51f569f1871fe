// A model with recurrent state through real connectors: a prefill and a decode engine over shared memory and over TCP
// give the tokens and logits of one engine, with every block size, and hand over all there is.
#include <gtest/gtest.h>

#include "apps/serve/handoff_host.h"
#include "base/check.h"
#include "engine/make_engine.h"
#include "engine/testing/fake_model.h"
#include "engine/testing/harness.h"
#include "engine_under_test.h"

namespace baton::exactness {
namespace {

using engine::KvRole;

struct Case {
  const char* transport;
  int block_size;
};

class StateHandoff : public ::testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<engine::Engine> start(KvRole role) {
    engine::EngineConfig config;
    config.max_model_len = 512;
    config.max_num_batched_tokens = 100;
    config.max_num_seqs = 8;
    config.block_size = GetParam().block_size;
    config.kv_cache_bytes = 64 << 20;
    config.kv_cache_dtype = "float32";
    config.hash_logits = true;
    config.state_snapshot_interval = 64;
    pools_.push_back(std::make_unique<ComputePool>(ComputePool::Options{.threads = 1, .spin_us = 0}));
    engine::EngineDependencies dependencies{.pool = pools_.back().get()};
    if (role != KvRole::kNone) {
      config.kv_transfer = {
          .role = role, .engine_id = role == KvRole::kProducer ? "p" : "d", .transport = GetParam().transport};
      dependencies.make_kv_host = apps::handoff_host_factory(
          {.config = config.kv_transfer, .profile = {.isa = "test", .kernel_revision = 1, .onednn_version = ""}});
    }
    auto made = engine::make_engine(config, engine::testing::make_fake_model({.state_layers = 5, .state_heads = 3}),
                                    std::move(dependencies));
    BATON_CHECK(made.has_value(), "{}", made.error().to_string());
    return *std::move(made);
  }
  std::vector<std::unique_ptr<ComputePool>> pools_;  // one per engine
};

TEST_P(StateHandoff, GivesTheTokensOfOneEngine) {
  std::vector<engine::EngineRequest> requests;
  for (int i = 0; i < 24; ++i) {
    const int length = 2 + i * 7;
    requests.push_back(engine::testing::make_request(
        "r" + std::to_string(i), engine::testing::random_prompt(static_cast<uint64_t>(i % 5), length)));
  }
  Traces expected;
  {
    const auto alone = start(KvRole::kNone);
    expected = run_one_by_one(*alone, requests);
  }
  const auto prefill = start(KvRole::kProducer), decode = start(KvRole::kConsumer);
  int64_t external = 0;
  // A few at a time: P holds the state of each until D has it.
  for (size_t i = 0; i < requests.size(); i += 4) {
    std::vector<engine::EngineRequest> first(requests.begin() + static_cast<long>(i),
                                             requests.begin() + static_cast<long>(i + 4));
    auto second = first;
    for (auto& request : first) {
      request.sampling.max_tokens = 1;
      request.kv_transfer.emplace().do_remote_decode = true;
    }
    const auto offered = run_together(*prefill, first);
    for (auto& request : second) request.kv_transfer = offered.at(request.id).kv_transfer;
    for (const auto& [id, trace] : run_together(*decode, second)) {
      EXPECT_TRUE(trace.same_answer(expected.at(id))) << id << " " << trace.error;
      external += trace.external_tokens;
    }
  }
  EXPECT_GT(external, 0);
  EXPECT_EQ(decode->stats().last_token_mismatches, 0);
  EXPECT_EQ(decode->stats().transfer_failures, 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, StateHandoff,
                         ::testing::Values(Case{"shm", 4}, Case{"tcp", 4}, Case{"shm", 48}, Case{"tcp", 1}),
                         [](const auto& param) {
                           return std::string(param.param.transport) + std::to_string(param.param.block_size);
                         });

}  // namespace
}  // namespace baton::exactness
