#include "engine/testing/harness.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "base/check.h"
#include "base/log.h"

namespace baton::engine::testing {
namespace {

constexpr auto kPatience = std::chrono::seconds(10);

}  // namespace

Harness::Harness(Options options) : pool_({.threads = options.threads, .spin_us = 0}) {
  set_log_level(LogLevel::kError);
  engine_ = build(options);
}

std::unique_ptr<Engine> Harness::build(Options& options) {
  EngineDependencies dependencies{.pool = &pool_,
                                  .make_kv_host = make_twin_host(options.link, options.side),
                                  .metrics = &metrics_,
                                  .members = options.members,
                                  .replicas = options.replicas};
  std::unique_ptr<RankSet> ranks;
  if (options.grid) {
    auto make_rank = options.make_rank;
    if (!make_rank) {
      make_rank = [&](const models::RankSetup& rank, ComputePool&) -> Result<std::unique_ptr<models::Model>> {
        return make_fake_model(options.model, rank);
      };
    }
    auto loaded = RankSet::load(*options.grid, make_rank);
    BATON_CHECK(loaded.has_value(), "{}", loaded.error().to_string());
    ranks = *std::move(loaded);
  } else {
    ranks = RankSet::of_one(options.make_model ? options.make_model(pool_) : make_fake_model(options.model), pool_);
  }
  auto engine = make_engine(options.config, std::move(ranks), std::move(dependencies));
  BATON_CHECK(engine.has_value(), "{}", engine.error().to_string());
  return *std::move(engine);
}

Harness::~Harness() { engine_.reset(); }

Result<void> Harness::submit(EngineRequest request) {
  {
    std::lock_guard lock(mutex_);
    gathered_[request.id] = {};
  }
  return engine_->submit(std::move(request), [this](RequestOutput&& output) { take(std::move(output)); });
}

void Harness::take(RequestOutput&& output) {
  std::lock_guard lock(mutex_);
  auto& all = gathered_[output.id];
  EXPECT_FALSE(all.finished) << "an output after the last, of " << output.id;
  for (const auto& token : output.tokens) {
    all.tokens.push_back(token.token);
    all.hashes.push_back(token.logits_hash);
    all.details.push_back(token);
  }
  if (all.outputs++ == 0) all.first = output;
  all.finished = output.finish.has_value();
  all.last = std::move(output);
  changed_.notify_all();
}

Gathered Harness::wait(const std::string& id) {
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return gathered_[id].finished; })) << id << " does not end";
  return gathered_[id];
}

void Harness::wait_first_token(const std::string& id) {
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return !gathered_[id].tokens.empty(); })) << id;
}

Gathered Harness::run(EngineRequest request) {
  const auto id = request.id;
  const auto submitted = submit(std::move(request));
  EXPECT_TRUE(submitted.has_value()) << submitted.error().to_string();
  if (!submitted) return {};
  return wait(id);
}

std::vector<Gathered> Harness::run_all(std::vector<EngineRequest> requests) {
  std::vector<std::string> ids;
  for (auto& request : requests) {
    ids.push_back(request.id);
    const auto submitted = submit(std::move(request));
    EXPECT_TRUE(submitted.has_value()) << submitted.error().to_string();
    if (!submitted) ids.back().clear();
  }
  std::vector<Gathered> all;
  for (const auto& id : ids) all.push_back(id.empty() ? Gathered{} : wait(id));
  return all;
}

bool Harness::all_free() {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < deadline) {
    const auto stats = engine_->stats();
    if (stats.running == 0 && stats.waiting == 0 && stats.kv_blocks_used == 0 && stats.state_slots_held == 0)
      return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

EngineConfig Harness::small_config() {
  EngineConfig config;
  config.max_model_len = 128;
  config.max_num_batched_tokens = 64;
  config.max_num_seqs = 8;
  config.block_size = 4;
  config.kv_cache_dtype = "float32";
  config.hash_logits = true;
  config.kv_cache_bytes = bytes_for_blocks(config, {}, 256);
  return config;
}

int64_t Harness::bytes_for_blocks(const EngineConfig& config, const FakeModelOptions& model, int64_t blocks) {
  const auto geometry = kv::uniform_geometry({.layers = model.layers,
                                              .kv_heads = model.kv_heads,
                                              .head_dim = model.head_dim,
                                              .block_size = config.block_size,
                                              .dtype = *tensor::parse_dtype(config.kv_cache_dtype)});
  return geometry.block_bytes() * blocks;
}

EngineRequest make_request(std::string id, std::vector<TokenId> prompt) {
  EngineRequest request{.id = std::move(id), .prompt_ids = std::move(prompt)};
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 8;
  return request;
}

std::vector<TokenId> random_prompt(uint64_t seed, int length, int vocab_size) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> prompt;
  for (int i = 0; i < length; ++i) prompt.push_back(static_cast<TokenId>(random() % static_cast<uint64_t>(vocab_size)));
  return prompt;
}

}  // namespace baton::engine::testing
