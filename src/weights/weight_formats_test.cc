// A quantised matrix must be read as those who wrote it meant, and refused with its name where it can't be.
#include "weights/weight_formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <list>

#include "weights/json_parse.h"
#include "weights/safetensors_writer.h"
#include "weights/test_files.h"

namespace baton::weights {
namespace {

using nlohmann::json;
using tensor::DType;
using testing::AllOf;
using testing::HasSubstr;

const std::string kGoldens = BATON_SOURCE_DIR "/src/weights/testdata/weight_forms/";
const std::string kInt4 = "language_model.model.layers.1.mlp.experts.0.gate_proj";
const std::string kMxfp4 = "language_model.model.layers.1.block_sparse_moe.experts.0.w1";
const std::string kFp8 = "model.layers.0.self_attn.q_a_proj";
const std::string kLayer = "model.layers.0.";

std::vector<float> numbers(const TensorEntry& tensor) {
  int64_t count = 1;
  for (const int64_t dim : tensor.shape) count *= dim;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(tensor_value(tensor, i));
  return values;
}

struct Golden {
  std::string folder, base;
  DType dtype;
};

class WeightForms : public testing::TestWithParam<Golden> {};

TEST_P(WeightForms, ReadAsTheirOwnPackageReadsThem) {
  const auto checkpoint = *open_checkpoint(kGoldens + GetParam().folder);
  const auto formats = WeightFormats::open(*checkpoint);
  ASSERT_TRUE(formats.has_value()) << formats.error().to_string();
  const auto source = formats->find(GetParam().base + ".weight");
  ASSERT_TRUE(source.has_value()) << source.error().to_string();
  EXPECT_EQ(source->dtype, GetParam().dtype);
  const auto& tensors = checkpoint->tensors();
  const auto expected = numbers(tensors.at(GetParam().base + ".expected"));
  std::vector<int64_t> rows;
  if (const auto it = tensors.find(GetParam().base + ".rows"); it != tensors.end()) {
    for (const float row : numbers(it->second)) rows.push_back(static_cast<int64_t>(row));
  } else {
    for (int64_t row = 0; row < source->rows; ++row) rows.push_back(row);
  }
  const auto columns = static_cast<size_t>(source->columns);
  ASSERT_EQ(expected.size(), rows.size() * columns);
  std::vector<float> got(columns);
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_TRUE(source->dequantize_rows(rows[i], 1, got.data()));
    for (size_t k = 0; k < columns; ++k) {
      // -0 of an e2m1 code is 0 of ours.
      ASSERT_EQ(got[k] + 0.0f, expected[i * columns + k] + 0.0f) << "row " << rows[i] << " input " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, WeightForms,
                         testing::Values(Golden{"int4", kInt4, DType::kInt4Group32},
                                         Golden{"mxfp4", kMxfp4, DType::kMxfp4}, Golden{"fp8", kFp8, DType::kFp8Block},
                                         Golden{"modelslim", kLayer + "self_attn.q_a_proj", DType::kInt8Channel},
                                         Golden{"modelslim", kLayer + "mlp.gate_proj", DType::kInt8Static},
                                         Golden{"modelslim", kLayer + "mlp.up_proj", DType::kInt8Static},
                                         Golden{"modelslim", kLayer + "mlp.experts.1.gate_proj", DType::kInt4Channel},
                                         Golden{"modelslim", kLayer + "mlp.shared_experts.down_proj", DType::kMxfp4},
                                         Golden{"modelslim", kLayer + "self_attn.o_proj", DType::kMxfp8},
                                         Golden{"modelslim", kLayer + "self_attn.kv_b_proj", DType::kBF16}));

TEST(WeightForms, GgufMxfp4IsReadAsGgmlReadsIt) {
  const auto checkpoint = *open_checkpoint(BATON_SOURCE_DIR "/src/weights/testdata/ggml_mxfp4.gguf");
  const auto source = WeightFormats::open(*checkpoint)->find("blk.0.ffn_gate_exps.weight");
  ASSERT_TRUE(source.has_value()) << source.error().to_string();
  EXPECT_EQ(source->dtype, DType::kMxfp4);
  ASSERT_EQ(source->rows, 6) << "experts and their rows counted through";
  ASSERT_EQ(source->columns, 64);
  const auto expected = numbers(checkpoint->tensors().at("expected"));
  std::vector<float> got(expected.size());
  ASSERT_TRUE(source->dequantize_rows(0, 6, got.data()));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i] + 0.0f, expected[i] + 0.0f) << i;
}

// A golden folder as data, to be damaged and written again.
class FormFolder {
 public:
  explicit FormFolder(const std::string& golden) : source_(*open_checkpoint(kGoldens + golden)) {
    config = source_->config();
    if (golden == "modelslim") description = *read_json_object(kGoldens + golden + "/" + kDescriptionName);
    for (const auto& [name, entry] : source_->tensors()) {
      tensors.push_back({name, entry.dtype, entry.shape, {entry.data, static_cast<size_t>(entry.bytes)}});
    }
  }
  TensorSource& tensor(const std::string& name) { return *std::ranges::find(tensors, name, &TensorSource::name); }
  void erase(const std::string& name) {
    std::erase_if(tensors, [&](const TensorSource& tensor) { return tensor.name == name; });
  }
  template <typename T>
  void replace(const std::string& name, DType dtype, std::vector<int64_t> shape, std::vector<T> values) {
    const auto bytes = std::as_bytes(std::span(values));
    auto& kept = bytes_.emplace_back(bytes.begin(), bytes.end());
    tensor(name) = {name, dtype, std::move(shape), kept};
  }
  template <typename T>
  void poke_element(const std::string& name, size_t index, T value) {
    const auto& old = tensor(name);
    auto& kept = bytes_.emplace_back(old.data.begin(), old.data.end());
    poke(kept, index * sizeof(T), value);
    tensor(name).data = kept;
  }
  // The error of opening and finding, or "found".
  std::string outcome(const std::string& base, std::string_view quantization = "") {
    TestFolder folder;
    folder.put("config.json", config.dump());
    if (!description.is_null()) folder.put(kDescriptionName, description.dump());
    const auto written = write_safetensors(folder.file("model.safetensors"), tensors);
    if (!written) return written.error().to_string();
    const auto checkpoint = open_checkpoint(folder.path());
    if (!checkpoint) return checkpoint.error().to_string();
    const auto formats = WeightFormats::open(**checkpoint, quantization);
    if (!formats) return formats.error().to_string();
    const auto source = formats->find(base + ".weight");
    if (!source) return source.error().to_string();
    std::vector<float> values(static_cast<size_t>(source->rows * source->columns));
    const auto read = source->dequantize_rows(0, source->rows, values.data());
    return read ? "found" : read.error().to_string();
  }

  std::vector<TensorSource> tensors;
  json config, description;

 private:
  std::unique_ptr<Checkpoint> source_;
  std::list<std::vector<std::byte>> bytes_;
};

std::string damaged(const std::string& golden, const std::string& base, const std::function<void(FormFolder&)>& damage,
                    std::string_view quantization = "") {
  FormFolder folder(golden);
  damage(folder);
  return folder.outcome(base, quantization);
}

TEST(WeightFormErrors, TheFolderIsFoundAsItIs) {
  for (const char* golden : {"int4", "mxfp4", "fp8"}) {
    const std::string base = std::string(golden) == "int4" ? kInt4 : std::string(golden) == "fp8" ? kFp8 : kMxfp4;
    EXPECT_EQ(damaged(golden, base, [](FormFolder&) {}), "found");
  }
  EXPECT_EQ(damaged("modelslim", kLayer + "mlp.gate_proj", [](FormFolder&) {}, "ascend"), "found");
}

TEST(WeightFormErrors, AMissingPartIsNamedWithItsForm) {
  EXPECT_THAT(damaged("fp8", kFp8, [](FormFolder& f) { f.erase(kFp8 + ".weight_scale_inv"); }),
              AllOf(HasSubstr("tensor " + kFp8 + ".weight_scale_inv is missing"), HasSubstr("fp8")));
  EXPECT_THAT(damaged("int4", kInt4, [](FormFolder& f) { f.erase(kInt4 + ".weight_scale"); }),
              HasSubstr(kInt4 + ".weight_scale is missing"));
  EXPECT_THAT(damaged("int4", kInt4, [](FormFolder& f) { f.erase(kInt4 + ".weight_shape"); }),
              HasSubstr(kInt4 + ".weight_shape is missing"));
  EXPECT_THAT(damaged("mxfp4", kMxfp4, [](FormFolder& f) { f.erase(kMxfp4 + ".weight_packed"); }),
              HasSubstr(kMxfp4 + ".weight is missing"));
  for (const char* part : {"input_scale", "input_offset", "deq_scale", "quant_bias", "weight"}) {
    const std::string base = kLayer + "mlp.gate_proj";
    EXPECT_THAT(damaged("modelslim", base, [&](FormFolder& f) { f.erase(base + "." + part); }),
                AllOf(HasSubstr(base + "." + part + " is missing"), HasSubstr("W8A8")));
  }
  for (const char* base : {"self_attn.q_a_proj", "mlp.experts.0.gate_proj", "self_attn.o_proj"}) {
    const std::string scale = kLayer + base + ".weight_scale";
    EXPECT_THAT(damaged("modelslim", kLayer + base, [&](FormFolder& f) { f.erase(scale); }),
                HasSubstr(scale + " is missing"));
  }
}

TEST(WeightFormErrors, AScaleOfTheWrongShapeIsNamedWithBothShapes) {
  EXPECT_THAT(damaged("fp8", kFp8,
                      [](FormFolder& f) {
                        f.replace(kFp8 + ".weight_scale_inv", DType::kF32, {1, 2}, std::vector<float>{1, 1});
                      }),
              AllOf(HasSubstr("model.safetensors: tensor " + kFp8 + ".weight_scale_inv has shape [1, 2]"),
                    HasSubstr("must be [2, 2]")));
  EXPECT_THAT(damaged("int4", kInt4,
                      [](FormFolder& f) {
                        f.replace(kInt4 + ".weight_scale", DType::kBF16, {8, 2}, std::vector<uint16_t>(16, 0x3f80));
                      }),
              HasSubstr("has shape [8, 2], must be [8, 3]"));
  EXPECT_THAT(damaged("mxfp4", kMxfp4,
                      [](FormFolder& f) {
                        f.replace(kMxfp4 + ".weight_scale", DType::kU8, {3, 8}, std::vector<uint8_t>(24, 127));
                      }),
              HasSubstr("has shape [3, 8], must be [8, 3]"));
  const std::string base = kLayer + "self_attn.q_a_proj";
  EXPECT_THAT(
      damaged("modelslim", base,
              [&](FormFolder& f) { f.replace(base + ".weight_scale", DType::kF32, {5, 1}, std::vector<float>(5, 1)); }),
      HasSubstr("has shape [5, 1], must be [6, 1]"));
}

TEST(WeightFormErrors, AnotherFormatOfAPartIsNamed) {
  EXPECT_THAT(damaged("fp8", kFp8,
                      [](FormFolder& f) {
                        f.replace(kFp8 + ".weight_scale_inv", DType::kBF16, {2, 2}, std::vector<uint16_t>(4, 0x3f80));
                      }),
              HasSubstr(".weight_scale_inv is bf16, must be f32"));
  EXPECT_THAT(damaged("int4", kInt4,
                      [](FormFolder& f) {
                        f.replace(kInt4 + ".weight_scale", DType::kF32, {8, 3}, std::vector<float>(24, 1));
                      }),
              HasSubstr(".weight_scale is f32, must be bf16"));
  const std::string base = kLayer + "mlp.shared_experts.down_proj";
  EXPECT_THAT(
      damaged("modelslim", base,
              [&](FormFolder& f) { f.replace(base + ".weight", DType::kI8, {5, 32}, std::vector<int8_t>(160, 0)); }),
      HasSubstr(".weight is i8, must be u8"));
}

TEST(WeightFormErrors, AScaleThatIsNoNumberIsNamed) {
  EXPECT_THAT(damaged("fp8", kFp8, [](FormFolder& f) { f.poke_element(kFp8 + ".weight_scale_inv", 3, std::nanf("")); }),
              AllOf(HasSubstr(kFp8 + ".weight_scale_inv"), HasSubstr("row 128, input 128 is nan")));
  EXPECT_THAT(
      damaged("mxfp4", kMxfp4, [](FormFolder& f) { f.poke_element(kMxfp4 + ".weight_scale", 4, uint8_t{255}); }),
      AllOf(HasSubstr(kMxfp4 + ".weight_scale"), HasSubstr("row 1, input 32 is nan")));
  EXPECT_THAT(
      damaged("int4", kInt4, [](FormFolder& f) { f.poke_element(kInt4 + ".weight_scale", 0, uint16_t{0x7f80}); }),
      HasSubstr("row 0, input 0"));
  const std::string base = kLayer + "self_attn.q_a_proj";
  EXPECT_THAT(
      damaged("modelslim", base, [&](FormFolder& f) { f.poke_element(base + ".weight_scale", 2, std::nanf("")); }),
      AllOf(HasSubstr("model.safetensors: tensor " + base + ".weight_scale: row 2 is nan")));
  const std::string gate = kLayer + "mlp.gate_proj";
  EXPECT_THAT(damaged("modelslim", gate, [&](FormFolder& f) { f.poke_element(gate + ".input_scale", 0, 0.0f); }),
              HasSubstr("input_scale is 0; it must be above 0"));
  EXPECT_THAT(
      damaged("modelslim", gate,
              [&](FormFolder& f) { f.replace(gate + ".input_scale", DType::kI32, {1}, std::vector<int32_t>{1}); }),
      HasSubstr("input_scale is i32, must be f32 or bf16 or f16"));
  const std::string up = kLayer + "mlp.up_proj";
  EXPECT_THAT(damaged("modelslim", up, [&](FormFolder& f) { f.poke_element(up + ".deq_scale", 1, int64_t{1} << 40); }),
              HasSubstr("deq_scale: row 1 is 1099511627776, not the bits of an fp32 number"));
}

TEST(WeightFormErrors, AWeightOffByOneIsNamed) {
  EXPECT_THAT(
      damaged("int4", kInt4,
              [](FormFolder& f) { f.replace(kInt4 + ".weight_shape", DType::kI32, {2}, std::vector<int32_t>{8, 95}); }),
      AllOf(HasSubstr("says [8, 95]"), HasSubstr("holds [8, 96]")));
  EXPECT_THAT(damaged("mxfp4", kMxfp4,
                      [](FormFolder& f) {
                        f.replace(kMxfp4 + ".weight_packed", DType::kU8, {8, 47}, std::vector<uint8_t>(8 * 47));
                      }),
              HasSubstr("has 94 inputs; mxfp4 is read in whole blocks of 32"));
  EXPECT_THAT(damaged("fp8", kFp8,
                      [](FormFolder& f) {
                        f.replace(kFp8 + ".weight", DType::kF8E4M3, {130, 255}, std::vector<uint8_t>(130 * 255));
                      }),
              HasSubstr("has 255 inputs; fp8_block is read in whole blocks of 128"));
}

TEST(WeightFormErrors, EmptyMatricesOfHugeDimensionsAreNamed) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  EXPECT_THAT(damaged("int4", kInt4,
                      [](FormFolder& f) {
                        f.replace(kInt4 + ".weight_packed", DType::kI32, {0, kHuge}, std::vector<int32_t>{});
                      }),
              HasSubstr("weight_packed has shape [0, 4611686018427387904], must be a matrix"));
  EXPECT_THAT(
      damaged("fp8", kFp8,
              [](FormFolder& f) { f.replace(kFp8 + ".weight", DType::kF8E4M3, {kHuge, 0}, std::vector<uint8_t>{}); }),
      HasSubstr("must be a matrix"));
  const std::string base = kLayer + "self_attn.kv_b_proj";
  EXPECT_THAT(damaged("modelslim", base,
                      [&](FormFolder& f) {
                        f.replace(base + ".weight", DType::kBF16, {kHuge, 0, kHuge}, std::vector<uint16_t>{});
                      }),
              HasSubstr("is not a weight matrix"));
}

TEST(WeightFormErrors, AConfigurationThatContradictsTheTensorsIsNamed) {
  const auto fp8 = json{{"quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}}};
  EXPECT_THAT(damaged("int4", kInt4, [&](FormFolder& f) { f.config = fp8; }),
              AllOf(HasSubstr(kInt4 + ".weight_packed (i32 [8, 12]) is int4"), HasSubstr("config.json says fp8")));
  EXPECT_THAT(damaged("mxfp4", kMxfp4, [&](FormFolder& f) { f.config = json::object(); }),
              HasSubstr("is mxfp4-pack-quantized, but config.json says nothing"));
  EXPECT_THAT(damaged("fp8", kFp8, [&](FormFolder& f) { f.config = json::object(); }),
              HasSubstr("but config.json says nothing of quantisation"));
  EXPECT_THAT(damaged("modelslim", kLayer + "self_attn.o_proj", [&](FormFolder& f) { f.config = fp8; }),
              HasSubstr("contradicts config.json, whose quantization_config says fp8"));
  EXPECT_THAT(damaged("modelslim", kLayer + "self_attn.kv_b_proj",
                      [](FormFolder& f) { f.description[kLayer + "self_attn.q_a_proj.weight"] = "FLOAT"; }),
              "found");
  EXPECT_THAT(damaged("modelslim", kLayer + "self_attn.q_a_proj",
                      [](FormFolder& f) { f.description[kLayer + "self_attn.q_a_proj.weight"] = "FLOAT"; }),
              HasSubstr("q_a_proj.weight (i8 [6, 40]) is not a weight matrix"));
}

TEST(WeightFormErrors, AConfigurationThatIsNotReadNamesItsKey) {
  const auto with = [](const char* golden, const std::string& base, const std::function<void(json&)>& change) {
    return damaged(golden, base, [&](FormFolder& f) {
      change(f.config.contains("text_config") ? f.config["text_config"]["quantization_config"]
                                              : f.config["quantization_config"]);
    });
  };
  const auto weights = [](json& q) -> json& { return q["config_groups"]["group_0"]["weights"]; };
  EXPECT_THAT(with("fp8", kFp8, [](json& q) { q["weight_block_size"] = {64, 128}; }),
              HasSubstr("weight_block_size is [64,128]; [128, 128] is read"));
  EXPECT_THAT(with("fp8", kFp8, [](json& q) { q["fmt"] = "e5m2"; }), HasSubstr("fmt is e5m2"));
  EXPECT_THAT(with("fp8", kFp8, [](json& q) { q["quant_method"] = "awq"; }), HasSubstr("quant_method is awq"));
  EXPECT_THAT(with("int4", kInt4, [&](json& q) { weights(q)["group_size"] = 128; }),
              HasSubstr("weights.group_size is 128; 32 is read"));
  EXPECT_THAT(with("int4", kInt4, [&](json& q) { weights(q)["symmetric"] = false; }), HasSubstr("symmetric is false"));
  EXPECT_THAT(with("int4", kInt4, [&](json& q) { weights(q)["num_bits"] = 8; }), HasSubstr("num_bits is 8"));
  EXPECT_THAT(with("int4", kInt4, [](json& q) { q["format"] = "marlin-24"; }), HasSubstr("format is marlin-24"));
  EXPECT_THAT(with("int4", kInt4, [](json& q) { q["config_groups"]["group_1"] = json::object(); }),
              HasSubstr("config_groups must be one group"));
  EXPECT_THAT(with("mxfp4", kMxfp4, [](json& q) { q = 3; }), HasSubstr("quantization_config is not an object"));
  EXPECT_EQ(with("mxfp4", kMxfp4,
                 [](json& q) {
                   q["config_groups"]["group_0"]["format"] = q["format"];
                   q.erase("format");
                 }),
            "found")
      << "the format may stand in its group";
}

TEST(WeightFormErrors, DescriptionsThatLeaveATensorOpenAreRefused) {
  const std::string base = kLayer + "self_attn.q_a_proj";
  EXPECT_THAT(
      damaged("modelslim", base, [&](FormFolder& f) { f.description.erase(base + ".weight"); }),
      AllOf(HasSubstr("quant_model_description.json: key " + base + ".weight is absent"), HasSubstr("data_loss")));
  EXPECT_THAT(damaged("modelslim", base, [&](FormFolder& f) { f.description[base + ".weight"] = "W4A4_FLATQUANT"; }),
              AllOf(HasSubstr(base + ".weight is W4A4_FLATQUANT"), HasSubstr("unimplemented")));
  EXPECT_THAT(damaged("modelslim", kLayer + "mlp.gate_proj",
                      [](FormFolder& f) { f.description[kLayer + "mlp.up_proj.weight"] = "FLOAT"; }),
              AllOf(HasSubstr("mlp.gate_proj.weight is W8A8"), HasSubstr("mlp.up_proj.weight FLOAT"),
                    HasSubstr("both must have one type")));
  EXPECT_THAT(damaged("modelslim", kLayer + "mlp.experts.1.gate_proj",
                      [](FormFolder& f) { f.description[kLayer + "mlp.experts.1.gate_proj.weight"] = "W8A8_DYNAMIC"; }),
              HasSubstr("experts.0.gate_proj.weight W4A8_DYNAMIC; both must have one type"));
  EXPECT_THAT(damaged(
                  "int4", kInt4, [](FormFolder&) {}, "ascend"),
              HasSubstr("quant_model_description.json is missing; quantization \"ascend\""));
  EXPECT_THAT(damaged("int4", kInt4, [](FormFolder&) {}, "awq"), HasSubstr("quantization \"awq\" is not known"));
  EXPECT_THAT(damaged("modelslim", base, [&](FormFolder& f) { f.description[base + ".weight"] = 4; }),
              HasSubstr("key " + base + ".weight must hold the name of a format, not number"));
}

TEST(WeightFormErrors, AQuantizationThatTheCheckpointDoesNotHaveIsRefused) {
  const auto found = [](const std::string& golden, const std::string& base, std::string_view quantization) {
    return damaged(golden, base, [](FormFolder&) {}, quantization);
  };
  EXPECT_EQ(found("fp8", kFp8, "fp8"), "found");
  EXPECT_EQ(found("int4", kInt4, "compressed-tensors"), "found");
  EXPECT_EQ(found("mxfp4", kMxfp4, "compressed-tensors"), "found");
  EXPECT_THAT(
      found("int4", kInt4, "fp8"),
      AllOf(HasSubstr("quantization \"fp8\" was asked for, but config.json says int4"), HasSubstr("leave it out")));
  EXPECT_THAT(found("fp8", kFp8, "compressed-tensors"), HasSubstr("config.json says fp8 in blocks"));
  EXPECT_THAT(found("fp8", kFp8, "gguf"), HasSubstr("quantization \"gguf\" was asked for"));
}

TEST(WeightFormErrors, WhatAscendFormsCanNotSayHereIsRefused) {
  const std::string expert = kLayer + "mlp.experts.1.gate_proj";
  EXPECT_THAT(damaged("modelslim", expert, [](FormFolder& f) { f.description["group_size"] = 256; }),
              HasSubstr("in groups of 256 is not read"));
  EXPECT_THAT(damaged("modelslim", expert, [](FormFolder& f) { f.description.erase("group_size"); }),
              HasSubstr("in groups of 256 is not read"))
      << "vLLM-Ascend's default";
  EXPECT_THAT(damaged("modelslim", expert, [](FormFolder& f) { f.description.erase("version"); }),
              HasSubstr("version \"\" is not read"));
  EXPECT_THAT(damaged("modelslim", expert, [&](FormFolder& f) { f.poke_element(expert + ".weight_offset", 3, 1.0f); }),
              AllOf(HasSubstr(expert + ".weight_offset: element 3 is 1"), HasSubstr("symmetric")));
}

TEST(WeightFormats, AKeyMayLackTheTextModelsPrefix) {
  FormFolder folder("modelslim");
  for (auto& tensor : folder.tensors) tensor.name = "language_model." + tensor.name;
  EXPECT_EQ(folder.outcome("language_model." + kLayer + "self_attn.q_a_proj"), "found");
}

TEST(WeightFormats, RowsComeOutInTheLayoutOfKernels) {
  const auto checkpoint = *open_checkpoint(kGoldens + "mxfp4");
  const auto source = *WeightFormats::open(*checkpoint)->find(kMxfp4 + ".weight");
  ASSERT_EQ(source.row_bytes(), 3 * 17);
  std::vector<std::byte> row(51);
  source.read_rows(2, 1, row.data());
  const auto& scales = checkpoint->tensors().at(kMxfp4 + ".weight_scale");
  const auto& codes = checkpoint->tensors().at(kMxfp4 + ".weight_packed");
  EXPECT_EQ(row[17], scales.data[2 * 3 + 1]) << "a block begins with its scale";
  EXPECT_EQ(row[18], codes.data[2 * 48 + 16]) << "then its codes";
  EXPECT_EQ(source.stored_rows(0), nullptr);
  EXPECT_EQ(source.parts.size(), 2u);
}

TEST(WeightFormats, ShapesAloneCanBeChecked) {
  FormFolder folder("modelslim");
  const std::string base = kLayer + "self_attn.q_a_proj";
  folder.poke_element(base + ".weight_scale", 2, std::nanf(""));
  TestFolder place;
  place.put("config.json", "{}");
  place.put(kDescriptionName, folder.description.dump());
  ASSERT_TRUE(write_safetensors(place.file("model.safetensors"), folder.tensors));
  const auto checkpoint = *open_checkpoint(place.path());
  const auto formats = *WeightFormats::open(*checkpoint);
  EXPECT_TRUE(formats.find(base + ".weight", Values::kSkip).has_value());
  EXPECT_FALSE(formats.find(base + ".weight").has_value());
}

}  // namespace
}  // namespace baton::weights
