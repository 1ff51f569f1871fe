// Tiny Llamas in both layouts against a float64 reference (tools/goldens/models_tiny_llama.py), and bit-equal logits
// for any step, block size and thread count.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "models/model_runner.h"
#include "models/tiny_checkpoint.h"

namespace baton::models {
namespace {

using tensor::DType;
using tensor::Isa;

const nlohmann::json& goldens() {
  static const nlohmann::json data = [] {
    std::ifstream file(BATON_SOURCE_DIR "/src/models/testdata/tiny_llama_numpy.json");
    return nlohmann::json::parse(file);
  }();
  return data;
}

struct Case {
  const char* name;
  TinySpec spec;
  // Largest difference allowed, in logits of deviation 1 to 5. Where activations are rounded (bf16, q8_0) the reference
  // rounds them too, but a value near a tie may fall to the other side.
  double bound;
};

const nlohmann::json kLlama3 = {{"rope_scaling",
                                 {{"rope_type", "llama3"},
                                  {"factor", 8.0},
                                  {"low_freq_factor", 1.0},
                                  {"high_freq_factor", 4.0},
                                  {"original_max_position_embeddings", 32}}}};
const nlohmann::json kLinear = {
    {"rope_theta", nullptr}, {"rope_parameters", {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 10000.0}}}};

std::vector<Case> cases() {
  return {
      {"hf_f32_llama3_biases", {.biases = true, .config_patch = kLlama3}, 2e-5},
      {"hf_bf16_tied_linear", {.dtype = DType::kBF16, .tied = true, .config_patch = kLinear}, 2e-5},
      {"hf_f32_explicit_head_dim", {.head_dim = 24, .config_patch = {{"rope_theta", 500000.0}}}, 2e-5},
      {"gguf_f32_rope_factors", {.gguf = true, .rope_factors = {1, 1, 1.5f, 2, 4, 8, 8, 8}}, 2e-5},
      {"gguf_q8_0_tied", {.gguf = true, .dtype = DType::kQ8_0, .tied = true}, 2e-5},
  };
}

std::vector<Isa> isas() {
  std::vector<Isa> list = {Isa::kPortable};
  if (tensor::detect_isa() >= Isa::kAvx2) list.push_back(Isa::kAvx2);
  if (tensor::detect_isa() >= Isa::kAvx512) list.push_back(Isa::kAvx512);
  return list;
}

std::unique_ptr<Model> load(const TinyCheckpoint& checkpoint, Isa isa) {
  ComputePool pool({.threads = 2, .spin_us = 0});
  auto model = load_model(checkpoint.path(), {.isa = isa}, pool);
  EXPECT_TRUE(model.has_value()) << model.error().to_string();
  return model ? std::move(*model) : nullptr;
}

TEST(TinyLlama, LogitsAreTheReferences) {
  const auto ids = goldens()["ids"].get<std::vector<int32_t>>();
  const auto rows = goldens()["rows"].get<std::vector<int>>();
  for (const Case& c : cases()) {
    const TinyCheckpoint checkpoint(c.spec);
    ASSERT_TRUE(checkpoint.written().has_value()) << checkpoint.written().error().to_string();
    for (Isa isa : isas()) {
      const auto model = load(checkpoint, isa);
      ASSERT_NE(model, nullptr);
      ModelRunner runner(*model, {.cache_dtype = DType::kF32});
      const std::vector<float> logits = runner.feed(ids, 256);
      double worst = 0, squares = 0;
      for (size_t i = 0; i < rows.size(); ++i) {
        for (int v = 0; v < TinyCheckpoint::kVocab; ++v) {
          const double want = goldens()["cases"][c.name][i][v].get<double>();
          const double error = std::abs(logits[rows[i] * TinyCheckpoint::kVocab + v] - want);
          worst = std::isnan(error) ? 1e9 : std::max(worst, error);
          squares += want * want;
        }
      }
      EXPECT_LT(worst, c.bound) << c.name << " " << isa_name(isa);
      std::printf("%-26s %-8s worst %.2e of deviation %.2f\n", c.name, std::string(isa_name(isa)).c_str(), worst,
                  std::sqrt(squares / static_cast<double>(rows.size() * TinyCheckpoint::kVocab)));
    }
  }
}

TEST(TinyLlama, SameBitsForAnyStepBlockSizeAndThreads) {
  std::vector<int32_t> ids;
  for (int i = 0; i < 150; ++i) ids.push_back((31 * i + 7) % TinyCheckpoint::kVocab);
  for (const Case& c : cases()) {
    const TinyCheckpoint checkpoint(c.spec);
    const auto model = load(checkpoint, tensor::detect_isa());
    ASSERT_NE(model, nullptr);
    std::vector<float> want;
    for (const RunnerOptions& options :
         {RunnerOptions{.cache_dtype = DType::kBF16}, RunnerOptions{.cache_dtype = DType::kBF16, .threads = 2},
          RunnerOptions{.cache_dtype = DType::kBF16, .block_size = 48, .threads = 3}}) {
      for (int chunk : {256, 64, 17, 1}) {
        ModelRunner runner(*model, options);
        const std::vector<float> got = runner.feed(ids, chunk);
        if (want.empty()) want = got;
        EXPECT_TRUE(got == want) << c.name << " chunk " << chunk << " threads " << options.threads;
      }
    }
  }
}

TEST(TinyLlama, OneDnnChangesNoBit) {
  const TinyCheckpoint checkpoint({.dtype = DType::kBF16});
  ComputePool pool({.threads = 1});
  std::vector<int32_t> ids(200, 5);
  std::vector<std::vector<float>> logits;
  for (bool allow : {false, true}) {
    auto model = load_model(checkpoint.path(), {.isa = tensor::detect_isa(), .allow_onednn = allow}, pool);
    ASSERT_TRUE(model.has_value()) << model.error().to_string();
    ModelRunner runner(**model, {});
    logits.push_back(runner.feed(ids, 200));
  }
  EXPECT_TRUE(logits[0] == logits[1]);
}

TEST(TinyLlama, FingerprintIsOfWeightsAndConfigurationNotOfPlace) {
  const auto of = [](const TinySpec& spec) {
    const TinyCheckpoint checkpoint(spec);
    const auto model = load(checkpoint, Isa::kPortable);
    return model == nullptr ? "" : model->fingerprint();
  };
  const std::string base = of({});
  EXPECT_EQ(base.size(), 64u);
  EXPECT_EQ(of({}), base);
  EXPECT_NE(of({.config_patch = {{"rms_norm_eps", 1e-6}}}), base);
  EXPECT_NE(of({.config_patch = {{"rope_theta", 20000}}}), base);
  EXPECT_NE(of({.dtype = DType::kBF16}), base);
  const std::vector<std::byte> zeros(64 * 4);
  EXPECT_NE(of({.damage =
                    [&](auto& tensors) {
                      for (auto& tensor : tensors) {
                        if (tensor.shape.size() == 1) tensor.data = zeros;
                      }
                    }}),
            base);
}

}  // namespace
}  // namespace baton::models
