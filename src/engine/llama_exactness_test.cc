// The exactness contract with real kernels: a small random Llama, prompts that reach into a third attention lane, and
// one hash of the logits per position, equal however the requests are run.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/testing/harness.h"
#include "weights/random_checkpoint.h"

namespace baton::engine::testing {
namespace {

using tensor::DType;

constexpr int kVocab = 320;

class LlamaExactness : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    const auto name = std::string(tensor::dtype_name(GetParam()));
    path_ = std::filesystem::temp_directory_path() / ("baton_engine_" + name + "_" + std::to_string(getpid()));
    weights::RandomLlamaOptions options{.dtype = GetParam()};
    const auto written = GetParam() == DType::kBF16 ? weights::write_random_huggingface(path_, options)
                                                    : weights::write_random_gguf(path_, options);
    ASSERT_TRUE(written.has_value()) << written.error().to_string();
    expected_ = alone();
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  static EngineConfig config() {
    EngineConfig config;
    config.max_model_len = 2048;
    config.max_num_batched_tokens = 256;
    config.max_num_seqs = 16;
    config.hash_logits = true;
    config.kv_cache_bytes = 8 << 20;
    return config;
  }
  Harness::Options options(EngineConfig config, bool onednn = true) const {
    return {.config = std::move(config), .make_model = [path = path_, onednn](ComputePool& pool) {
              auto model = models::load_model(path, {.isa = tensor::detect_isa(), .allow_onednn = onednn}, pool);
              EXPECT_TRUE(model.has_value()) << (model ? "" : model.error().to_string());
              return *std::move(model);
            }};
  }

  static std::vector<EngineRequest> requests() {
    std::vector<EngineRequest> all;
    for (const int length : {1, 7, 16, 33, 100, 129, 300, 770, 1650}) {
      const int i = static_cast<int>(all.size());
      auto request = make_request("r" + std::to_string(i), random_prompt(static_cast<uint64_t>(i), length, kVocab));
      request.sampling.max_tokens = 10;
      if (i % 2) {
        request.sampling.temperature = 1;
        request.sampling.seed = static_cast<uint64_t>(i);
      }
      if (i % 3 == 1) request.sampling.repetition_penalty = 1.2f;
      all.push_back(std::move(request));
    }
    return all;
  }

  std::vector<Gathered> alone() {
    std::vector<Gathered> all;
    Harness harness(options(without_cache(config())));
    for (auto& request : requests()) all.push_back(harness.run(request));
    return all;
  }
  static EngineConfig without_cache(EngineConfig config) {
    config.prefix_caching = false;
    return config;
  }

  void expect_same(Harness& harness, const std::string& how) {
    const auto got = harness.run_all(requests());
    for (size_t i = 0; i < got.size(); ++i) compare(got[i], i, how);
    EXPECT_TRUE(harness.all_free()) << how;
  }
  void compare(const Gathered& got, size_t i, const std::string& how) {
    EXPECT_EQ(got.tokens, expected_[i].tokens) << how << ", request " << i;
    EXPECT_EQ(got.hashes, expected_[i].hashes) << how << ", request " << i;
  }

  std::filesystem::path path_;
  std::vector<Gathered> expected_;
};

TEST_P(LlamaExactness, BatchedAndAfterPrefixHits) {
  Harness harness(options(config()));
  expect_same(harness, "batched");
  expect_same(harness, "after prefix hits");
  EXPECT_GT(harness.engine().stats().prefix_hits, 2000);
}

TEST_P(LlamaExactness, Chunked) {
  for (const int budget : {16, 512}) {
    auto changed = config();
    changed.max_num_batched_tokens = budget;
    changed.max_num_seqs = std::min(changed.max_num_seqs, budget);
    Harness harness(options(changed));
    expect_same(harness, "chunks of " + std::to_string(budget));
  }
}

TEST_P(LlamaExactness, Preempted) {
  auto changed = config();
  changed.test_preempt_probability = 0.15;
  Harness harness(options(changed));
  expect_same(harness, "preempted");
  EXPECT_GT(harness.engine().stats().preemptions, 0);
}

TEST_P(LlamaExactness, BlockSizesAndThreads) {
  auto changed = config();
  changed.block_size = 768;
  auto built = options(changed);
  built.threads = 2;
  Harness harness(built);
  expect_same(harness, "blocks of 768, two threads");
}

TEST_P(LlamaExactness, WithoutOneDnn) {
  Harness harness(options(config(), false));
  expect_same(harness, "without oneDNN");
}

TEST_P(LlamaExactness, OverRanks) {
  for (const auto& sizes : {parallel::GridSizes{.tp = 2}, parallel::GridSizes{.pp = 2},
                            parallel::GridSizes{.pp = 2, .tp = 2}, parallel::GridSizes{.tp = 4}}) {
    auto changed = config();
    changed.max_num_batched_tokens = 96;
    changed.test_preempt_probability = 0.05;
    Harness harness(
        {.config = changed,
         .grid =
             RankSetOptions{.sizes = sizes, .stages = {0, sizes.pp}, .layer_partition = {}, .spin_us = 0, .enter = {}},
         .make_rank = [this](const models::RankSetup& rank, ComputePool& pool) {
           return models::load_model(path_, {.isa = tensor::detect_isa(), .rank = rank}, pool);
         }});
    expect_same(harness, sizes.text());
    expect_same(harness, sizes.text() + ", after prefix hits");
  }
}

TEST_P(LlamaExactness, HandedOver) {
  auto link = std::make_shared<TwinLink>();
  auto prefill_options = options(config());
  prefill_options.link = link;
  prefill_options.side = TwinSide::kProducer;
  auto decode_options = options(config());
  decode_options.link = link;
  decode_options.side = TwinSide::kConsumer;
  Harness prefill(prefill_options), decode(decode_options);
  auto all = requests();
  for (size_t i = 0; i < all.size(); ++i) {
    auto first = all[i];
    first.sampling.max_tokens = 1;
    first.kv_transfer = wire::KvTransferParams{};
    first.kv_transfer->do_remote_decode = true;
    all[i].kv_transfer = prefill.run(first).last.kv_transfer;
    const auto got = decode.run(all[i]);
    compare(got, i, "handed over");
    EXPECT_EQ(got.first.external_tokens, i == 0 ? 0 : static_cast<int64_t>(all[i].prompt_ids.size()));
  }
  EXPECT_EQ(decode.engine().stats().last_token_mismatches, 0);
  EXPECT_TRUE(decode.all_free());
  EXPECT_TRUE(prefill.all_free());
}

INSTANTIATE_TEST_SUITE_P(Weights, LlamaExactness, ::testing::Values(DType::kBF16, DType::kQ8_0, DType::kQ4_1),
                         [](const auto& info) { return std::string(tensor::dtype_name(info.param)); });

}  // namespace
}  // namespace baton::engine::testing
