// A model in each published form must compute what its dequantised weights mean, and the same bits however it is asked.
#include <gtest/gtest.h>

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

// The same model with every matrix as the fp32 numbers that its codes and scales mean.
Result<void> write_dequantised(const std::string& from, const std::string& to) {
  BATON_TRY_ASSIGN(const auto checkpoint, weights::open_checkpoint(from));
  BATON_TRY_ASSIGN(const auto formats, weights::WeightFormats::open(*checkpoint));
  std::list<std::vector<float>> kept;
  std::vector<weights::TensorSource> tensors;
  for (const auto& [name, entry] : checkpoint->tensors()) {
    const bool norm = name.ends_with("norm.weight");
    const size_t cut = name.rfind(".weight");
    if (cut == std::string::npos || (!name.ends_with(".weight") && !name.ends_with(".weight_packed"))) continue;
    const std::string weight = name.substr(0, cut) + ".weight";
    auto& values = kept.emplace_back();
    std::vector<int64_t> shape = entry.shape;
    if (norm) {
      for (int64_t i = 0; i < shape[0]; ++i) values.push_back(weights::tensor_value(entry, i));
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

}  // namespace
}  // namespace baton::models
