// Each family against goldens from outside (tests/data/goldens/families/PROVENANCE.md): the residual stream after every
// layer and the logits of a tiny fp32 checkpoint, in fp32 with an fp32 cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/golden_checkpoint.h"
#include "models/golden_gguf.h"
#include "models/model_runner.h"
#include "tensor/cpu.h"

namespace baton::models {
namespace {

constexpr double kRelativeBound = 1e-5;

double relative_error(std::span<const float> got, std::span<const float> wanted) {
  EXPECT_EQ(got.size(), wanted.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double d = static_cast<double>(got[i]) - wanted[i];
    difference += d * d;
    size += static_cast<double>(wanted[i]) * wanted[i];
  }
  return std::sqrt(difference / size);
}

struct Outcome {
  std::vector<std::vector<float>> layers;
  std::vector<float> logits;
};

class FamilyGolden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    checkpoint_ = std::make_unique<GoldenCheckpoint>(GetParam());
    pool_ = std::make_unique<ComputePool>(ComputePool::Options{.threads = 2, .spin_us = 0});
  }

  std::unique_ptr<Model> load(tensor::Isa isa) {
    auto model = load_model(checkpoint_->path(), {.isa = isa}, *pool_);
    EXPECT_TRUE(model.has_value()) << model.error().to_string();
    return model ? std::move(*model) : nullptr;
  }

  Outcome run(Model& model, const GoldenCase& golden, int chunk, RunnerOptions options) {
    const auto ids = golden.array<int32_t>("ids");
    const auto shape = golden.index()["arrays"]["layers"]["shape"];
    Outcome outcome;
    outcome.layers.resize(shape[0].get<size_t>());
    ModelRunner runner(model, options);
    EXPECT_TRUE(runner.prepared().has_value());
    runner.tap(&outcome.layers, shape[2].get<int64_t>());
    outcome.logits = runner.feed(ids, chunk);
    return outcome;
  }

  std::unique_ptr<GoldenCheckpoint> checkpoint_;
  std::unique_ptr<ComputePool> pool_;
};

TEST_P(FamilyGolden, LayersAndLogitsMatchTheReference) {
  for (const tensor::Isa isa : {tensor::Isa::kPortable, tensor::detect_isa()}) {
    const auto model = load(isa);
    ASSERT_NE(model, nullptr);
    // "transformers": what the released class says itself, where there is one.
    for (const char* name : {"short", "long", "transformers"}) {
      if (!std::filesystem::exists(golden_folder(GetParam()) + "/" + name)) continue;
      const GoldenCase golden(GetParam(), name);
      const Outcome outcome = run(*model, golden, 1 << 20, {.cache_dtype = tensor::DType::kF32, .max_tokens = 128});
      const auto layers = golden.array<float>("layers");
      const size_t layer_size = layers.size() / outcome.layers.size();
      for (size_t i = 0; i < outcome.layers.size(); ++i) {
        const auto wanted = std::span(layers).subspan(i * layer_size, layer_size);
        EXPECT_LE(relative_error(outcome.layers[i], wanted), kRelativeBound)
            << GetParam() << " " << name << " layer " << i << " " << tensor::isa_name(isa);
      }
      EXPECT_LE(relative_error(outcome.logits, golden.array<float>("logits")), kRelativeBound)
          << GetParam() << " " << name << " logits " << tensor::isa_name(isa);
    }
  }
}

// Chunked = whole, paged = nearly contiguous, one thread = two: bit for bit.
TEST_P(FamilyGolden, ChunksBlocksAndThreadsChangeNoBit) {
  const auto model = load(tensor::detect_isa());
  ASSERT_NE(model, nullptr);
  const GoldenCase golden(GetParam(), "long");
  for (const tensor::DType dtype : {tensor::DType::kF32, tensor::DType::kBF16}) {
    const RunnerOptions plain = {.cache_dtype = dtype, .block_size = 128, .max_tokens = 128};
    const Outcome whole = run(*model, golden, 1 << 20, plain);
    for (const int chunk : {1, 3, 16}) {
      for (const int block_size : {4, 128}) {
        RunnerOptions options = plain;
        options.block_size = block_size;
        options.threads = 1 + chunk % 2;
        const Outcome other = run(*model, golden, chunk, options);
        ASSERT_EQ(other.logits, whole.logits) << "chunk " << chunk << " block " << block_size;
        ASSERT_EQ(other.layers, whole.layers);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FamilyGolden,
                         testing::Values("deepseek_v3", "deepseek_v32", "deepseek_v32_options", "kimi_k25",
                                         "kimi_linear", "kimi_k3", "kimi_k31"),
                         [](const auto& param_info) { return param_info.param; });

// The same weights in a GGUF file, against llama.cpp's own logits.
class FamilyGguf : public testing::TestWithParam<std::string> {};

TEST_P(FamilyGguf, LogitsMatchLlamaCpp) {
  const GoldenGguf file(GetParam());
  ComputePool pool({.threads = 2, .spin_us = 0});
  const auto model = load_model(file.path(), {.isa = tensor::detect_isa()}, pool);
  ASSERT_TRUE(model.has_value()) << model.error().to_string();
  const GoldenCase golden(GetParam(), "llama_cpp");
  ModelRunner runner(**model, {.cache_dtype = tensor::DType::kF32, .max_tokens = 128});
  ASSERT_TRUE(runner.prepared().has_value());
  const auto logits = runner.feed(golden.array<int32_t>("ids"), 1 << 20);
  EXPECT_LE(relative_error(logits, golden.array<float>("logits")), kRelativeBound);
}

INSTANTIATE_TEST_SUITE_P(All, FamilyGguf,
                         testing::Values("deepseek_v3", "deepseek_v32", "kimi_k25", "kimi_linear", "kimi_k3"),
                         [](const auto& param_info) { return param_info.param; });

}  // namespace
}  // namespace baton::models
