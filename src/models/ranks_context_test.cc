// A context that is spread over ranks gives the bits of one rank: few rows, whose lanes ranks leave to each other, and
// many, which are attended to whole; beyond one round of the ranks, and of the lanes.
#include <gtest/gtest.h>

#include <filesystem>

#include "models/golden_checkpoint.h"
#include "models/grid_runner.h"
#include "weights/make_checkpoint/make_checkpoint.h"

namespace baton::models {
namespace {

namespace fs = std::filesystem;
using parallel::GridSizes;
using tensor::DType;
using weights::CheckpointArch;

class Checkpoint {
 public:
  explicit Checkpoint(CheckpointArch arch, int heads = 16) : sizes(weights::tiny_sizes(arch)) {
    std::string pattern = (fs::temp_directory_path() / "baton_context_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    ComputePool pool({.threads = 1, .spin_us = 0});
    sizes.heads = heads;
    if (sizes.kv_heads != 0) sizes.kv_heads = heads / 2;
    if (sizes.linear_heads != 0) sizes.linear_heads = heads;
    sizes.max_positions = 1 << 15;
    const auto made = weights::make_checkpoint(path(), {.arch = arch, .sizes = sizes}, pool);
    EXPECT_TRUE(made.has_value()) << made.error().to_string();
  }
  ~Checkpoint() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;
  std::string path() const { return folder_ + "/model"; }

  weights::CheckpointSizes sizes;

 private:
  std::string folder_;
};

// Sequences with `cached` tokens each in the cache, then steps of few and of many rows, all of them and single ones.
GridScript long_script(std::mt19937& random, int vocab, const std::vector<int>& cached) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  GridScript script{.sequences = {}, .steps = {}, .cached = cached};
  const int count = static_cast<int>(cached.size());
  std::vector<int> more(cached.size());
  const auto step = [&](const std::vector<int>& rows) {
    std::vector<ScriptPart> parts;
    for (int s = 0; s < count; ++s) {
      const int n = rows[static_cast<size_t>(s)];
      if (n == 0) continue;
      parts.push_back({s, n});
      more[static_cast<size_t>(s)] += n;
    }
    script.steps.push_back(std::move(parts));
  };
  std::vector<int> rows(cached.size());
  for (int& n : rows) n = 1;
  step(rows);
  for (int& n : rows) n = below(4);
  rows[0] = 3;
  step(rows);
  for (int& n : rows) n = below(2);
  rows.back() = 20 + below(20);
  step(rows);
  for (int& n : rows) n = 1;
  step(rows);
  for (size_t s = 0; s < cached.size(); ++s) {
    std::vector<int32_t> tokens(static_cast<size_t>(cached[s] + more[s]));
    for (int32_t& token : tokens) token = below(vocab);
    script.sequences.push_back(std::move(tokens));
  }
  return script;
}

void expect_equal(const std::string& path, const GridScript& script, const std::vector<GridSizes>& grids, DType dtype) {
  const GridOutcome one = GridRunner(path, {}, {.cache_dtype = dtype}).run(script);
  for (const GridSizes& sizes : grids) {
    SCOPED_TRACE(fmt::format("{} interleave {} cache {}", sizes.text(), sizes.interleave, tensor::dtype_name(dtype)));
    const GridOutcome many = GridRunner(path, sizes, {.cache_dtype = dtype}).run(script);
    if (testing::Test::HasFatalFailure()) return;
    ASSERT_EQ(many.logits, one.logits);
    ASSERT_TRUE(many.cache == one.cache);
  }
}

class RanksContext : public testing::TestWithParam<CheckpointArch> {};

TEST_P(RanksContext, ASpreadContextGivesTheBitsOfOneRank) {
  const Checkpoint checkpoint(GetParam(), 8);
  std::mt19937 random(7 + static_cast<unsigned>(GetParam()));
  const GridScript script = long_script(random, checkpoint.sizes.vocab, {2400, 1530});
  const std::vector<GridSizes> all = {{.tp = 2, .dcp = 2},
                                      {.pcp = 2},
                                      {.pcp = 2, .tp = 2},
                                      {.pp = 2, .tp = 4, .dcp = 2},
                                      {.tp = 2, .dcp = 2, .interleave = 1536},
                                      {.pcp = 2, .tp = 4, .dcp = 4},
                                      {.pp = 2, .pcp = 4, .tp = 2, .dcp = 1}};
  constexpr DType kDtypes[] = {DType::kBF16, DType::kI8, DType::kF8E4M3, DType::kF32};
  for (const DType dtype : kDtypes) {
    expect_equal(checkpoint.path(), script, {all[random() % all.size()]}, dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RanksContext,
                         testing::Values(CheckpointArch::kLlama, CheckpointArch::kDeepseekV3,
                                         CheckpointArch::kDeepseekV32, CheckpointArch::kKimiLinear,
                                         CheckpointArch::kKimiK3, CheckpointArch::kKimiK31),
                         [](const auto& param_info) {
                           return std::string(weights::checkpoint_arch_name(param_info.param));
                         });

// More than one round of all sixteen lanes, and every rank holds KV of it.
TEST(RanksContext, SixteenContextRanksHoldAllOfALongPrompt) {
  for (const CheckpointArch arch : {CheckpointArch::kDeepseekV32, CheckpointArch::kDeepseekV3}) {
    const Checkpoint checkpoint(arch);
    std::mt19937 random(3);
    const GridScript script = long_script(random, checkpoint.sizes.vocab, {12500, 800});
    const GridOutcome one = GridRunner(checkpoint.path(), {}, {}).run(script);
    const GridOutcome many = GridRunner(checkpoint.path(), {.tp = 16, .dcp = 16}, {}).run(script);
    if (HasFatalFailure()) return;
    ASSERT_EQ(many.logits, one.logits);
    ASSERT_TRUE(many.cache == one.cache);
    ASSERT_EQ(many.positions_held.size(), 16u);
    for (const auto& [rank, held] : many.positions_held) EXPECT_GE(held, 768) << rank;
  }
}

// Prompts computed in chunks by the grid itself, not made up.
TEST(RanksContext, APromptOfSeveralRoundsIsComputedAlike) {
  const Checkpoint checkpoint(CheckpointArch::kDeepseekV3, 4);
  std::mt19937 random(11);
  GridScript script;
  std::vector<int32_t> tokens(1700);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % static_cast<unsigned>(checkpoint.sizes.vocab));
  script.sequences = {tokens};
  script.steps = {{{0, 700}}, {{0, 100}}, {{0, 890}}, {{0, 5}}, {{0, 4}}, {{0, 1}}};
  expect_equal(checkpoint.path(), script, {{.tp = 2, .dcp = 2}, {.pcp = 2, .tp = 2}}, DType::kBF16);
}

}  // namespace
}  // namespace baton::models
