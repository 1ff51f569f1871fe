// A model in each published form must compute what its dequantised weights mean, and the same bits however it is asked.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <list>

#include "models/model.h"
#include "models/model_runner.h"
#include "weights/make_checkpoint/make_checkpoint.h"
#include "weights/quantize/quantize_checkpoint.h"
#include "weights/safetensors_writer.h"
#include "weights/weight_formats.h"

namespace baton::models {
namespace {

namespace fs = std::filesystem;
using tensor::DType;
using tensor::Isa;
using weights::QuantScheme;

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "baton_quantised_XXXXXX").string();
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

// Tensors that say what a matrix's codes mean.
bool is_companion(const std::string& name) {
  constexpr std::string_view kEnds[] = {".weight_scale",  ".weight_scale_inv", ".weight_shape",
                                        ".weight_offset", ".input_scale",      ".input_offset",
                                        ".deq_scale",     ".quant_bias",       ".scale_bias"};
  return std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); });
}

// The same model with every matrix as the fp32 numbers that its codes and scales mean.
Result<void> write_dequantised(const std::string& from, const std::string& to) {
  BATON_TRY_ASSIGN(const auto checkpoint, weights::open_checkpoint(from));
  BATON_TRY_ASSIGN(const auto formats, weights::WeightFormats::open(*checkpoint));
  std::list<std::vector<float>> kept;
  std::vector<weights::TensorSource> tensors;
  for (const auto& [name, entry] : checkpoint->tensors()) {
    if (is_companion(name)) continue;
    const size_t cut = name.rfind(".weight");
    const bool matrix = cut != std::string::npos && (entry.shape.size() == 2 || name.ends_with(".weight_packed"));
    const std::string weight = matrix ? name.substr(0, cut) + ".weight" : name;
    auto& values = kept.emplace_back();
    std::vector<int64_t> shape = entry.shape;
    if (!matrix) {
      int64_t count = 1;
      for (const int64_t size : shape) count *= size;
      for (int64_t i = 0; i < count; ++i) values.push_back(weights::tensor_value(entry, i));
    } else {
      BATON_TRY_ASSIGN(const auto source, formats.find(weight));
      shape = {source.rows, source.columns};
      values.resize(static_cast<size_t>(source.rows * source.columns));
      BATON_TRY(source.dequantize_rows(0, source.rows, values.data()));
    }
    tensors.push_back({weight, DType::kF32, std::move(shape), std::as_bytes(std::span(values))});
  }
  fs::create_directories(to);
  auto config = checkpoint->config();
  config.erase("quantization_config");
  std::FILE* file = std::fopen((to + "/config.json").c_str(), "wb");
  std::fputs(config.dump().c_str(), file);
  std::fclose(file);
  return weights::write_safetensors(to + "/model.safetensors", tensors);
}

std::vector<int32_t> prompt() {
  std::vector<int32_t> ids;
  for (int i = 0; i < 24; ++i) ids.push_back((37 * i + 11) % 320);
  return ids;
}

std::unique_ptr<Model> load(const std::string& path, Isa isa, std::string quantization = "") {
  ComputePool pool({.threads = 2, .spin_us = 0});
  auto model = load_model(path, {.isa = isa, .quantization = std::move(quantization)}, pool);
  EXPECT_TRUE(model.has_value()) << model.error().to_string();
  return model ? std::move(*model) : nullptr;
}

struct Case {
  QuantScheme scheme;
  // Of the logits' relative L2 distance from the dequantised model's: what rounding activations may cost over two
  // layers. Static scales cover a range of 8 that attention's outputs use little of.
  double bound;
};

class QuantisedLlama : public testing::TestWithParam<Case> {};

TEST_P(QuantisedLlama, ComputesWhatItsDequantisedWeightsMean) {
  const Folder folder;
  ComputePool pool({.threads = 2, .spin_us = 0});
  const auto arch = weights::CheckpointArch::kLlama;
  ASSERT_TRUE(weights::make_checkpoint(folder / "plain", {.arch = arch, .sizes = weights::tiny_sizes(arch)}, pool));
  const auto report =
      weights::quantize_checkpoint(folder / "plain", folder / "quantised", {.scheme = GetParam().scheme}, pool);
  ASSERT_TRUE(report.has_value()) << report.error().to_string();
  const auto reference_written = write_dequantised(folder / "quantised", folder / "reference");
  ASSERT_TRUE(reference_written.has_value()) << reference_written.error().to_string();

  const auto reference = load(folder / "reference", Isa::kPortable);
  const std::string ascend = weights::is_modelslim(GetParam().scheme) ? "ascend" : "";
  const auto portable = load(folder / "quantised", Isa::kPortable, ascend);
  const auto best = load(folder / "quantised", tensor::detect_isa(), ascend);
  ASSERT_TRUE(reference && portable && best);
  const auto want = ModelRunner(*reference, {.cache_dtype = DType::kF32}).feed(prompt(), 24);
  const auto got = ModelRunner(*portable, {.cache_dtype = DType::kF32}).feed(prompt(), 24);
  double error = 0, squares = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(got[i] - want[i], 2);
    squares += std::pow(want[i], 2);
  }
  const double distance = std::sqrt(error / squares);
  std::printf("%-13s relative L2 %.4f\n", std::string(weights::quant_scheme_name(GetParam().scheme)).c_str(), distance);
  EXPECT_LT(distance, GetParam().bound);
  EXPECT_GT(distance, 0);

  const auto whole = ModelRunner(*best, {.cache_dtype = DType::kF32}).feed(prompt(), 24);
  EXPECT_TRUE(whole == ModelRunner(*best, {.cache_dtype = DType::kF32, .threads = 3}).feed(prompt(), 5))
      << "steps and threads";
}

INSTANTIATE_TEST_SUITE_P(Scheme, QuantisedLlama,
                         testing::Values(Case{QuantScheme::kFp8Block, 0.02}, Case{QuantScheme::kInt4Group32, 0.03},
                                         Case{QuantScheme::kMxfp4, 0.03}, Case{QuantScheme::kW8A8, 0.1},
                                         Case{QuantScheme::kW8A8Dynamic, 0.04}, Case{QuantScheme::kW4A8Dynamic, 0.04},
                                         Case{QuantScheme::kW4A8Mxfp, 0.03}, Case{QuantScheme::kW8A8Mxfp8, 0.02}));

// Families with experts: rounded activations may choose other experts for a token whose scores are close, so the middle
// token's distance is what is bounded.
struct FamilyCase {
  weights::CheckpointArch arch;
  QuantScheme scheme;
  double bound;
};
class QuantisedFamily : public testing::TestWithParam<FamilyCase> {};

TEST_P(QuantisedFamily, ComputesWhatItsDequantisedWeightsMean) {
  const Folder folder;
  ComputePool pool({.threads = 2, .spin_us = 0});
  const auto [arch, scheme, bound] = GetParam();
  ASSERT_TRUE(weights::make_checkpoint(folder / "plain",
                                       {.arch = arch, .sizes = weights::tiny_sizes(arch), .dtype = DType::kF32}, pool));
  ASSERT_TRUE(weights::quantize_checkpoint(folder / "plain", folder / "quantised", {.scheme = scheme}, pool));
  const auto written = write_dequantised(folder / "quantised", folder / "reference");
  ASSERT_TRUE(written.has_value()) << written.error().to_string();
  const auto reference = load(folder / "reference", tensor::detect_isa());
  const auto quantised = load(folder / "quantised", tensor::detect_isa());
  ASSERT_TRUE(reference && quantised);
  const auto want = ModelRunner(*reference, {.cache_dtype = DType::kF32}).feed(prompt(), 24);
  const auto got = ModelRunner(*quantised, {.cache_dtype = DType::kF32}).feed(prompt(), 24);
  const size_t tokens = prompt().size(), vocab = want.size() / tokens;
  std::vector<double> distances;
  for (size_t t = 0; t < tokens; ++t) {
    double error = 0, squares = 0;
    for (size_t i = t * vocab; i < (t + 1) * vocab; ++i) {
      error += std::pow(got[i] - want[i], 2);
      squares += std::pow(want[i], 2);
    }
    distances.push_back(std::sqrt(error / squares));
  }
  std::ranges::sort(distances);
  std::printf("%-13s relative L2 of the middle token %.4f, of the worst %.4f\n",
              std::string(weights::quant_scheme_name(scheme)).c_str(), distances[tokens / 2], distances.back());
  EXPECT_LT(distances[tokens / 2], bound);
  EXPECT_GT(distances[tokens / 2], 0);
}

using weights::CheckpointArch;
INSTANTIATE_TEST_SUITE_P(Scheme, QuantisedFamily,
                         testing::Values(FamilyCase{CheckpointArch::kDeepseekV3, QuantScheme::kFp8Block, 0.02},
                                         FamilyCase{CheckpointArch::kKimiK25, QuantScheme::kInt4Group32, 0.05},
                                         FamilyCase{CheckpointArch::kKimiK3, QuantScheme::kMxfp4, 0.06},
                                         FamilyCase{CheckpointArch::kKimiK31, QuantScheme::kW8A8, 0.4},
                                         FamilyCase{CheckpointArch::kKimiK31, QuantScheme::kW8A8Dynamic, 0.15},
                                         FamilyCase{CheckpointArch::kKimiK31, QuantScheme::kW4A8Dynamic, 0.15},
                                         FamilyCase{CheckpointArch::kKimiK31, QuantScheme::kW4A8Mxfp, 0.05},
                                         FamilyCase{CheckpointArch::kKimiK31, QuantScheme::kW8A8Mxfp8, 0.03}));

}  // namespace
}  // namespace baton::models
