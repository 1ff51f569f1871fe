// Any grid of ranks gives the bits of one rank: logits, taps and cache, in every family, weight format and cache dtype.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

#include "models/golden_checkpoint.h"
#include "models/golden_gguf.h"
#include "models/grid_runner.h"
#include "weights/make_checkpoint/make_checkpoint.h"
#include "weights/quantize/quantize_checkpoint.h"
#include "weights/random_checkpoint.h"

namespace baton::models {
namespace {

namespace fs = std::filesystem;
using parallel::GridSizes;
using tensor::DType;
using weights::CheckpointArch;
using weights::QuantScheme;

constexpr DType kCacheDtypes[] = {DType::kBF16, DType::kF16, DType::kF32, DType::kF8E4M3, DType::kI8};

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "baton_ranks_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A grid whose ranks fit `heads` heads and `layers` layers.
GridSizes random_grid(std::mt19937& random, int heads, int layers) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (;;) {
    GridSizes sizes{.pp = 1 + below(3), .pcp = 1 + below(2), .tp = 1 + below(6), .interleave = 768};
    if (below(2) == 0) sizes.dcp = sizes.tp;
    const bool one = sizes.pp * sizes.pcp * sizes.tp == 1;
    const parallel::GridLimits limits{.layers = layers, .heads = heads};
    if (!one && parallel::check_grid(sizes, limits)) return sizes;
  }
}

void expect_grids_equal_one_rank(const std::string& path, int heads, int layers, int vocab, unsigned seed, int grids,
                                 const std::string& quantization = "") {
  std::mt19937 random(seed);
  const GridScript script = random_script(random, vocab, 3, 60);
  for (int i = 0; i < grids; ++i) {
    GridOptions options{.cache_dtype = kCacheDtypes[random() % std::size(kCacheDtypes)], .quantization = quantization};
    const GridOutcome one = GridRunner(path, {}, options).run(script);
    const GridSizes sizes = random_grid(random, heads, layers);
    options.threads = 1 + static_cast<int>(random() % 2);
    SCOPED_TRACE(fmt::format("seed {} grid {} cache {}", seed, sizes.text(), tensor::dtype_name(options.cache_dtype)));
    const GridOutcome many = GridRunner(path, sizes, options).run(script);
    if (testing::Test::HasFatalFailure()) return;
    ASSERT_EQ(many.logits, one.logits);
    ASSERT_TRUE(many.cache == one.cache);
    ASSERT_EQ(many.fingerprint, one.fingerprint);
  }
}

unsigned seed_of(const std::string& name) {
  unsigned hash = 17;
  for (const char c : name) hash = hash * 31 + static_cast<unsigned char>(c);
  return hash;
}

class RanksFamily : public testing::TestWithParam<std::string> {};

TEST_P(RanksFamily, AnyGridGivesTheBitsOfOneRank) {
  const GoldenCheckpoint checkpoint(GetParam());
  const auto config = read_json(checkpoint.path() + "/config.json");
  const auto& text = config.contains("text_config") ? config["text_config"] : config;
  expect_grids_equal_one_rank(checkpoint.path(), text["num_attention_heads"], text["num_hidden_layers"], 256,
                              seed_of(GetParam()), 4);
}

INSTANTIATE_TEST_SUITE_P(All, RanksFamily,
                         testing::Values("deepseek_v3", "deepseek_v32", "deepseek_v32_options", "kimi_k25",
                                         "kimi_linear", "kimi_k3", "kimi_k31"),
                         [](const auto& param_info) { return param_info.param; });

class RanksGguf : public testing::TestWithParam<std::string> {};

TEST_P(RanksGguf, AnyGridGivesTheBitsOfOneRank) {
  const GoldenGguf file(GetParam());
  const int layers = GetParam() == "kimi_k3" ? 9 : GetParam() == "kimi_linear" ? 7 : 4;
  expect_grids_equal_one_rank(file.path(), 4, layers, 256, seed_of(GetParam()), 2);
}

INSTANTIATE_TEST_SUITE_P(All, RanksGguf, testing::Values("deepseek_v3", "kimi_linear", "kimi_k3"),
                         [](const auto& param_info) { return param_info.param; });

// Nine heads of three KV heads: ranks part the groups.
weights::RandomLlamaOptions odd_llama(DType dtype) {
  return {.layers = 3,
          .hidden = 144 * 2,
          .heads = 9,
          .kv_heads = 3,
          .head_dim = 32,
          .intermediate = 320,
          .vocab = 330,
          .tied = dtype != DType::kBF16,
          .attention_bias = dtype == DType::kBF16,
          .dtype = dtype};
}

TEST(RanksLlama, AnyGridGivesTheBitsOfOneRank) {
  const Folder folder;
  ASSERT_TRUE(weights::write_random_huggingface(folder / "bf16", odd_llama(DType::kBF16)));
  expect_grids_equal_one_rank(folder / "bf16", 9, 3, 330, 1, 5);
  for (const DType dtype : {DType::kF32, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    const std::string path = folder / (std::string(tensor::dtype_name(dtype)) + ".gguf");
    ASSERT_TRUE(weights::write_random_gguf(path, odd_llama(dtype)));
    expect_grids_equal_one_rank(path, 9, 3, 330, 100 + static_cast<unsigned>(dtype), 2);
  }
}

TEST(RanksLlama, SixteenTensorRanksAndARankForEachLayer) {
  const Folder folder;
  auto options = odd_llama(DType::kF16);
  options.heads = options.kv_heads = 16;
  options.layers = 5;
  ASSERT_TRUE(weights::write_random_huggingface(folder / "wide", options));
  std::mt19937 random(5);
  const GridScript script = random_script(random, 330, 2, 50);
  const GridOutcome one = GridRunner(folder / "wide", {}, {.taps = true}).run(script, options.hidden);
  for (const GridSizes& sizes : {GridSizes{.tp = 16}, GridSizes{.pp = 5, .tp = 2}}) {
    EXPECT_TRUE(GridRunner(folder / "wide", sizes, {.taps = true}).run(script, options.hidden) == one) << sizes.text();
  }
  const GridOutcome given = GridRunner(folder / "wide", {.pp = 2, .tp = 2}, {.layer_partition = {1, 4}, .taps = true})
                                .run(script, options.hidden);
  EXPECT_TRUE(given == one);
}

// A rank reads and holds its share alone: what is not cut is little.
TEST(RanksLlama, WeightsAreHeldOnce) {
  const Folder folder;
  auto options = odd_llama(DType::kF16);
  options.heads = options.kv_heads = 16;
  ASSERT_TRUE(weights::write_random_huggingface(folder / "wide", options));
  std::mt19937 random(5);
  const GridScript script = random_script(random, 330, 1, 4);
  const int64_t one = GridRunner(folder / "wide", {}, {}).run(script).weight_bytes;
  EXPECT_LT(GridRunner(folder / "wide", {.tp = 8}, {}).run(script).weight_bytes, one + one / 10);
}

struct SchemeCase {
  CheckpointArch arch;
  QuantScheme scheme;
};
class RanksQuantised : public testing::TestWithParam<SchemeCase> {};

TEST_P(RanksQuantised, AnyGridGivesTheBitsOfOneRank) {
  const Folder folder;
  ComputePool pool({.threads = 1, .spin_us = 0});
  const auto [arch, scheme] = GetParam();
  const auto sizes = weights::tiny_sizes(arch);
  ASSERT_TRUE(weights::make_checkpoint(folder / "plain", {.arch = arch, .sizes = sizes, .dtype = DType::kBF16}, pool));
  ASSERT_TRUE(weights::quantize_checkpoint(folder / "plain", folder / "quantised", {.scheme = scheme}, pool));
  const int heads = sizes.linear_heads != 0 ? std::min(sizes.heads, sizes.linear_heads) : sizes.heads;
  expect_grids_equal_one_rank(folder / "quantised", heads, sizes.layers, sizes.vocab,
                              seed_of(std::string(weights::quant_scheme_name(scheme))), 2,
                              weights::is_modelslim(scheme) ? "ascend" : "");
}

INSTANTIATE_TEST_SUITE_P(Scheme, RanksQuantised,
                         testing::Values(SchemeCase{CheckpointArch::kDeepseekV32, QuantScheme::kFp8Block},
                                         SchemeCase{CheckpointArch::kKimiK25, QuantScheme::kInt4Group32},
                                         SchemeCase{CheckpointArch::kKimiK3, QuantScheme::kMxfp4},
                                         SchemeCase{CheckpointArch::kKimiK31, QuantScheme::kW8A8},
                                         SchemeCase{CheckpointArch::kDeepseekV3, QuantScheme::kW8A8},
                                         SchemeCase{CheckpointArch::kKimiK31, QuantScheme::kW4A8Dynamic},
                                         SchemeCase{CheckpointArch::kKimiK31, QuantScheme::kW4A8Mxfp},
                                         SchemeCase{CheckpointArch::kLlama, QuantScheme::kW8A8Mxfp8},
                                         SchemeCase{CheckpointArch::kLlama, QuantScheme::kW8A8Dynamic}),
                         [](const auto& param_info) {
                           return fmt::format("{}_{}", weights::checkpoint_arch_name(param_info.param.arch),
                                              static_cast<int>(param_info.param.scheme));
                         });

TEST(Ranks, AGridThatDoesNotFitIsRefusedWithTheReason) {
  const Folder folder;
  ASSERT_TRUE(weights::write_random_huggingface(folder / "llama", odd_llama(DType::kF32)));
  ComputePool pool({.threads = 1});
  const auto load = [&](const GridSizes& sizes, int group, std::vector<int> partition = {}) {
    parallel::Team team(group);
    LoadOptions options;
    options.rank = {.place = {.sizes = sizes}, .layer_partition = std::move(partition), .group = {team, 0}};
    return load_model(folder / "llama", options, pool).error().message();
  };
  EXPECT_NE(load({.tp = 10}, 10).find("share 9 attention heads"), std::string::npos);
  EXPECT_NE(load({.pp = 4}, 1).find("4 pipeline stages for 3 layers"), std::string::npos);
  EXPECT_NE(load({.pp = 2}, 1, {1, 1}).find("VLLM_PP_LAYER_PARTITION=1,1"), std::string::npos);
  EXPECT_NE(load({.tp = 2}, 1).find("group of 1"), std::string::npos);
}

}  // namespace
}  // namespace baton::models
