// What was quantised and read back must be the input within half a step, in the tensors that the scheme names.
#include "weights/quantize/quantize_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "weights/json_parse.h"
#include "weights/make_checkpoint/make_checkpoint.h"
#include "weights/matrix_parts.h"
#include "weights/safetensors_writer.h"
#include "weights/test_files.h"
#include "weights/weight_formats.h"

namespace baton::weights {
namespace {

using tensor::DType;
using testing::AllOf;
using testing::HasSubstr;
using Arch = CheckpointArch;
using Scheme = QuantScheme;

class Quantize : public testing::Test {
 protected:
  // A small checkpoint, made once a process.
  static const std::string& made(Arch arch) {
    static TestFolder folder;
    static std::map<Arch, std::string> paths;
    auto& path = paths[arch];
    if (!path.empty()) return path;
    path = folder.file(checkpoint_arch_name(arch));
    ComputePool pool({.threads = 2, .spin_us = 0});
    auto sizes = tiny_sizes(arch);
    sizes.layers = 4;
    if (!is_llama(arch)) sizes.experts = arch == Arch::kDeepseekV32 ? 8 : 4;
    if (arch == Arch::kDeepseekV32) sizes.mtp_layers = 1;
    const auto written = make_checkpoint(path, {.arch = arch, .sizes = sizes}, pool);
    EXPECT_TRUE(written.has_value()) << written.error().to_string();
    return path;
  }
  Result<QuantizeReport> quantize(const std::string& in, const std::string& name, QuantizeOptions options) {
    ComputePool pool({.threads = 2, .spin_us = 0});
    return quantize_checkpoint(in, folder_.file(name), options, pool);
  }
  TestFolder folder_;
};

// Half a step of a form at a value in a group (or row) whose largest magnitude is given; a saturated top included.
float half_step(DType dtype, float value, float largest) {
  switch (dtype) {
    case DType::kFp8Block:
    case DType::kMxfp8:  // three bits after the leading one; below 2^-6 of the scale, steps of 2^-9
      return std::abs(value) / 16 + largest * 0x1p-17f;
    case DType::kInt4Group32:
      return largest * (0.5f / 7.5f * 1.05f);  // the scale is rounded to bf16: the top code may fall short by a little
    case DType::kMxfp4: {
      const float scale = std::ldexp(1.0f, std::ilogb(largest / 1.75f) + 1 - 2);  // the largest is below 7 of it
      const float scaled = std::abs(value) / scale;
      return scale * (scaled < 2 ? 0.25f : scaled < 4 ? 0.5f : 1.0f);
    }
    case DType::kInt8Channel:
    case DType::kInt8Static:
      return largest * (0.5f / 127 * 1.0001f);
    case DType::kInt4Channel:
      return largest * (0.5f / 7 * 1.0001f);
    default:
      return 0;
  }
}

int64_t group_size(DType dtype, int64_t columns) {
  switch (dtype) {
    case DType::kFp8Block:
      return 0;  // of the whole 128 x 128: the matrix's largest bounds it
    case DType::kInt8Channel:
    case DType::kInt8Static:
    case DType::kInt4Channel:
      return columns;
    default:
      return tensor::dtype_info(dtype).block_elements;
  }
}

void expect_within_half_a_step(const TensorEntry& input, const MatrixSource& source) {
  ASSERT_EQ(source.rows, input.shape[0]) << input.name;
  ASSERT_EQ(source.columns, input.shape[1]) << input.name;
  const auto columns = static_cast<size_t>(source.columns);
  std::vector<float> x(static_cast<size_t>(source.rows) * columns), back(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = tensor_value(input, static_cast<int64_t>(i));
  ASSERT_TRUE(source.dequantize_rows(0, source.rows, back.data()));
  float overall = 0;
  for (const float value : x) overall = std::max(overall, std::abs(value));
  const auto group = static_cast<size_t>(group_size(source.dtype, source.columns));
  for (size_t begin = 0; begin < x.size(); begin += group == 0 ? x.size() : group) {
    const size_t end = group == 0 ? x.size() : begin + group;
    float largest = group == 0 ? overall : 0;
    for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(x[i]));
    for (size_t i = begin; i < end; ++i) {
      ASSERT_LE(std::abs(back[i] - x[i]), half_step(source.dtype, x[i], largest)) << input.name << " element " << i;
    }
  }
}

struct Case {
  Scheme scheme;
  Arch arch;
  // Some matrices and the format each must have.
  std::map<std::string, DType> expected;
};

const std::string kK3 = "language_model.model.layers.";
const std::map<std::string, DType> kK31Floats = {
    {kK3 + "1.self_attn.o_proj.weight", DType::kBF16},     {kK3 + "1.self_attn.g_proj.weight", DType::kBF16},
    {kK3 + "1.self_attn.f_a_proj.weight", DType::kBF16},   {kK3 + "3.self_attn.kv_b_proj.weight", DType::kBF16},
    {kK3 + "3.self_attn.indexer.wk.weight", DType::kBF16}, {kK3 + "3.block_sparse_moe.gate.weight", DType::kBF16},
    {"language_model.lm_head.weight", DType::kBF16}};

std::map<std::string, DType> k31(DType attention, DType mlp, DType expert) {
  auto expected = kK31Floats;
  expected[kK3 + "1.self_attn.q_proj.weight"] = attention;
  expected[kK3 + "3.self_attn.q_b_proj.weight"] = attention;
  expected[kK3 + "3.self_attn.kv_a_proj_with_mqa.weight"] = attention;
  expected[kK3 + "0.mlp.down_proj.weight"] = mlp;
  expected[kK3 + "3.block_sparse_moe.routed_expert_up_proj.weight"] = mlp;
  expected[kK3 + "3.block_sparse_moe.shared_experts.down_proj.weight"] = mlp;
  expected[kK3 + "2.block_sparse_moe.experts.3.w1.weight"] = expert;
  expected[kK3 + "2.block_sparse_moe.experts.3.w2.weight"] = expert;
  return expected;
}

const Case kCases[] = {
    {Scheme::kFp8Block,
     Arch::kDeepseekV32,
     {{"model.layers.2.self_attn.q_a_proj.weight", DType::kFp8Block},
      {"model.layers.2.self_attn.kv_b_proj.weight", DType::kFp8Block},
      {"model.layers.2.self_attn.indexer.wq_b.weight", DType::kFp8Block},
      {"model.layers.2.self_attn.indexer.weights_proj.weight", DType::kBF16},
      {"model.layers.2.mlp.experts.7.down_proj.weight", DType::kFp8Block},
      {"model.layers.2.mlp.gate.weight", DType::kBF16},
      {"model.layers.4.mlp.experts.7.down_proj.weight", DType::kFp8Block},
      {"model.layers.4.eh_proj.weight", DType::kBF16},
      {"model.embed_tokens.weight", DType::kBF16}}},
    {Scheme::kInt4Group32,
     Arch::kKimiK25,
     {{kK3 + "2.self_attn.q_a_proj.weight", DType::kBF16},
      {kK3 + "0.mlp.up_proj.weight", DType::kBF16},
      {kK3 + "2.mlp.shared_experts.up_proj.weight", DType::kBF16},
      {kK3 + "2.mlp.experts.3.up_proj.weight", DType::kInt4Group32}}},
    {Scheme::kMxfp4, Arch::kKimiK31, k31(DType::kBF16, DType::kBF16, DType::kMxfp4)},
    {Scheme::kW8A8,
     Arch::kDeepseekV32,
     {{"model.layers.2.self_attn.q_a_proj.weight", DType::kInt8Static},
      {"model.layers.2.self_attn.o_proj.weight", DType::kInt8Static},
      {"model.layers.2.self_attn.kv_b_proj.weight", DType::kBF16},
      {"model.layers.2.mlp.experts.3.down_proj.weight", DType::kInt8Channel},
      {"model.layers.4.self_attn.q_a_proj.weight", DType::kBF16}}},
    {Scheme::kW8A8Dynamic, Arch::kKimiK31, k31(DType::kInt8Channel, DType::kInt8Channel, DType::kInt8Channel)},
    {Scheme::kW4A8Dynamic, Arch::kKimiK31, k31(DType::kInt8Channel, DType::kInt8Channel, DType::kInt4Channel)},
    {Scheme::kW4A8Mxfp, Arch::kKimiK31, k31(DType::kMxfp8, DType::kMxfp8, DType::kMxfp4)},
    {Scheme::kW8A8Mxfp8, Arch::kKimiK31, k31(DType::kMxfp8, DType::kMxfp8, DType::kMxfp8)},
    {Scheme::kInt4Group32,
     Arch::kLlama,
     {{"model.layers.1.self_attn.q_proj.weight", DType::kInt4Group32},
      {"model.layers.1.mlp.down_proj.weight", DType::kInt4Group32},
      {"lm_head.weight", DType::kBF16}}},
};

TEST_F(Quantize, EveryMatrixComesBackWithinHalfAStepAndTheRestAsItWas) {
  for (const Case& test : kCases) {
    SCOPED_TRACE(quant_scheme_name(test.scheme));
    const std::string& in = made(test.arch);
    const std::string out = fmt::format("{}_{}", quant_scheme_name(test.scheme), static_cast<int>(test.arch));
    const auto report = quantize(in, out, {.scheme = test.scheme});
    ASSERT_TRUE(report.has_value()) << report.error().to_string();
    EXPECT_EQ(report->unfit, 0) << report->unfit_example;
    EXPECT_GT(report->quantised, 0);
    const auto before = *open_checkpoint(in);
    const auto after = *open_checkpoint(folder_.file(out));
    const auto formats = WeightFormats::open(*after, is_modelslim(test.scheme) ? "ascend" : "");
    ASSERT_TRUE(formats.has_value()) << formats.error().to_string();
    std::set<std::string> seen;
    int64_t quantised = 0;
    for (const auto& [name, entry] : before->tensors()) {
      if (entry.shape.size() != 2 || !name.ends_with(".weight")) {
        const auto& copy = after->tensors().at(name);
        seen.insert(name);
        ASSERT_EQ(copy.shape, entry.shape);
        ASSERT_EQ(std::memcmp(copy.data, entry.data, static_cast<size_t>(entry.bytes)), 0) << name;
        continue;
      }
      const auto source = formats->find(name);
      ASSERT_TRUE(source.has_value()) << source.error().to_string();
      for (const TensorEntry* part : source->parts) seen.insert(part->name);
      if (const auto it = test.expected.find(name); it != test.expected.end())
        EXPECT_EQ(source->dtype, it->second) << name;
      quantised += source->dtype == entry.dtype ? 0 : 1;
      expect_within_half_a_step(entry, *source);
    }
    EXPECT_EQ(quantised, report->quantised);
    EXPECT_EQ(seen.size(), after->tensors().size()) << "nothing is written that belongs to no matrix";
    for (const auto& [name, dtype] : test.expected) EXPECT_TRUE(before->tensors().contains(name)) << name;
    EXPECT_TRUE(std::filesystem::exists(folder_.file(out + "/tokenizer.json")));
    EXPECT_FALSE(std::filesystem::exists(folder_.file(out + "/baton_quantize_unfinished.json")));
  }
}

std::string all_bytes(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  std::string bytes;
  for (const auto& name : names) {
    std::ifstream file(folder + "/" + name, std::ios::binary);
    bytes += name + std::string(std::istreambuf_iterator<char>(file), {});
  }
  return bytes;
}

TEST_F(Quantize, AnInterruptedRunIsTakenUpWhereItStopped) {
  const std::string& in = made(Arch::kKimiK31);
  const QuantizeOptions options{.scheme = Scheme::kW4A8Mxfp, .shard_bytes = 400'000};
  const auto whole = quantize(in, "whole", options);
  ASSERT_TRUE(whole.has_value()) << whole.error().to_string();
  ASSERT_GT(whole->files, 4);
  EXPECT_EQ(whole->files_resumed, 0);

  // Stopped at the fourth shard: the progress callback makes its place a folder, so that it can't be written.
  auto stopped = options;
  const std::string blocked = fmt::format("cut/model-00004-of-{:05}.safetensors.part", whole->files);
  stopped.progress = [&](int64_t, int64_t) {
    std::error_code ignored;
    std::filesystem::create_directories(folder_.file(blocked), ignored);
  };
  const auto cut = quantize(in, "cut", stopped);
  ASSERT_FALSE(cut.has_value());
  EXPECT_THAT(cut.error().message(), HasSubstr("model-00004-of-"));
  EXPECT_FALSE(open_checkpoint(folder_.file("cut")).has_value()) << "half a model must not open";
  std::filesystem::remove(folder_.file(blocked));

  const auto other = quantize(in, "cut", {.scheme = Scheme::kW8A8Mxfp8, .shard_bytes = 400'000});
  ASSERT_FALSE(other.has_value());
  EXPECT_THAT(other.error().to_string(),
              AllOf(HasSubstr("already_exists"), HasSubstr("\"scheme\" differs"), HasSubstr("remove the folder")));

  const auto first =
      std::filesystem::last_write_time(folder_.file(fmt::format("cut/model-00001-of-{:05}.safetensors", whole->files)));
  const auto resumed = quantize(in, "cut", options);
  ASSERT_TRUE(resumed.has_value()) << resumed.error().to_string();
  EXPECT_EQ(resumed->files_resumed, 3);
  EXPECT_EQ(
      std::filesystem::last_write_time(folder_.file(fmt::format("cut/model-00001-of-{:05}.safetensors", whole->files))),
      first);
  EXPECT_EQ(all_bytes(folder_.file("cut")), all_bytes(folder_.file("whole")));
  EXPECT_EQ(quantize(in, "cut", options).error().code(), Code::kAlreadyExists);
}

TEST_F(Quantize, ProgressEndsAtTheTotal) {
  int64_t last = 0, total = 0;
  ComputePool pool({.threads = 1});
  QuantizeOptions options{.scheme = Scheme::kW8A8Dynamic};
  options.progress = [&](int64_t done, int64_t all) {
    EXPECT_GE(done, last);
    last = done;
    total = all;
  };
  const auto report = quantize_checkpoint(made(Arch::kLlama), folder_.file("out"), options, pool);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(total, report->bytes);
  EXPECT_EQ(last, total);
}

TEST_F(Quantize, InputScalesComeFromAFileAndNoneMayBeMissing) {
  const std::string file =
      folder_.put("scales.json", R"({"model.layers.0.self_attn.q_proj": {"scale": 0.05, "offset": -7},
      "model.layers.0.self_attn.k_proj": 0.25})");
  const auto scales = read_input_scales(file);
  ASSERT_TRUE(scales.has_value()) << scales.error().to_string();
  EXPECT_FLOAT_EQ(scales->at("model.layers.0.self_attn.k_proj").scale, 0.25f);
  const auto lacking = quantize(made(Arch::kLlama), "lacking", {.scheme = Scheme::kW8A8, .inputs = *scales});
  ASSERT_FALSE(lacking.has_value());
  EXPECT_THAT(lacking.error().message(), HasSubstr("no input scale is given for model.layers.0.self_attn.o_proj"));

  auto all = *scales;
  for (int layer = 0; layer < 4; ++layer) {
    for (const char* leaf : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      all.emplace(fmt::format("model.layers.{}.self_attn.{}", layer, leaf), InputQuant{0.125f, 0});
    }
  }
  ASSERT_TRUE(quantize(made(Arch::kLlama), "all", {.scheme = Scheme::kW8A8, .inputs = all}));
  const auto checkpoint = *open_checkpoint(folder_.file("all"));
  const auto source = *WeightFormats::open(*checkpoint)->find("model.layers.0.self_attn.q_proj.weight");
  EXPECT_FLOAT_EQ(source.static_input->input_scale, 0.05f);
  EXPECT_EQ(source.static_input->input_offset, -7);

  for (const char* bad : {R"({"a": 0})", R"({"a": {"scale": 1, "offset": 128}})", R"({"a": "x"})"}) {
    EXPECT_THAT(read_input_scales(folder_.put("bad.json", bad)).error().message(), HasSubstr("bad.json: a must be"));
  }
}

TEST_F(Quantize, WhatCanNotBeQuantisedIsNamed) {
  EXPECT_THAT(quantize("/nowhere", "o", {}).error().message(), HasSubstr("/nowhere"));
  ASSERT_TRUE(quantize(made(Arch::kLlama), "fp8", {.scheme = Scheme::kFp8Block}));
  EXPECT_THAT(quantize(folder_.file("fp8"), "twice", {}).error().message(),
              HasSubstr("is quantised already: config.json says fp8"));
  ASSERT_TRUE(quantize(made(Arch::kLlama), "slim", {.scheme = Scheme::kW8A8Dynamic}));
  EXPECT_THAT(quantize(folder_.file("slim"), "twice", {}).error().message(), HasSubstr("it is quantised already"));

  std::vector<uint16_t> values(256 * 128, 0x3f80);
  const auto write = [&](const std::string& name, std::vector<int64_t> shape) {
    std::filesystem::create_directories(folder_.file(name));
    folder_.put(name + "/config.json", R"({"num_hidden_layers": 1})");
    ASSERT_TRUE(write_safetensors(
        folder_.file(name + "/model.safetensors"),
        std::vector<TensorSource>{{"model.layers.0.mlp.up_proj.weight", DType::kBF16, std::move(shape), raw(values)}}));
  };
  write("fit", {256, 128});
  folder_.put("fit/LICENSE", "words");
  folder_.put("fit/pytorch_model.bin", "weights of another kind");
  folder_.put("fit/.cache", "hidden");
  ASSERT_TRUE(quantize(folder_.file("fit"), "copied", {}));
  EXPECT_TRUE(std::filesystem::exists(folder_.file("copied/LICENSE")));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("copied/pytorch_model.bin")));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("copied/.cache")));
  write("narrow", {512, 64});
  EXPECT_THAT(
      quantize(folder_.file("narrow"), "o", {}).error().message(),
      AllOf(HasSubstr("no matrix that fp8-block would quantise"), HasSubstr("up_proj.weight: 64 inputs are not")));
  values[200 * 128 + 5] = 0x7fc0;
  write("nan", {256, 128});
  EXPECT_THAT(
      quantize(folder_.file("nan"), "o", {}).error().message(),
      AllOf(HasSubstr("nan/model.safetensors: tensor model.layers.0.mlp.up_proj.weight: row 200, input 5 is nan")));
}

}  // namespace
}  // namespace baton::weights
