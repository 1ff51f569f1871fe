// The checkpoints that tests and demos stand on: readable, the same everywhere, one function in both layouts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/hash.h"
#include "weights/checkpoint.h"
#include "weights/dequantize.h"
#include "weights/random_checkpoint.h"
#include "weights/small_tokenizer.h"
#include "weights/test_files.h"

namespace baton::weights {
namespace {

using tensor::DType;
using testing::HasSubstr;

std::vector<float> values_of(const TensorEntry& entry) {
  int64_t count = 1;
  for (const int64_t dim : entry.shape) count *= dim;
  std::vector<float> values(static_cast<size_t>(count));
  dequantize_row(entry.dtype, entry.data, count, values.data());
  return values;
}

std::unique_ptr<Checkpoint> must_open(const std::string& path) {
  auto checkpoint = open_checkpoint(path);
  if (!checkpoint.has_value()) throw std::runtime_error(checkpoint.error().to_string());
  return std::move(*checkpoint);
}

TEST(RandomCheckpoint, BothLayoutsHoldTheSameFunction) {
  TestFolder folder;
  RandomLlamaOptions options{.tied = false, .attention_bias = true};
  options.rope_scaling = Llama3RopeScaling{};
  ASSERT_TRUE(write_random_huggingface(folder.file("hf"), options).has_value());
  ASSERT_TRUE(write_random_gguf(folder.file("m.gguf"), options).has_value());
  const auto huggingface = must_open(folder.file("hf"));
  const auto gguf = must_open(folder.file("m.gguf"));
  const auto& q = gguf->tensors().at("blk.1.attn_q.weight");
  const auto q_gguf = values_of(q);
  const auto q_huggingface = values_of(huggingface->tensors().at("model.layers.1.self_attn.q_proj.weight"));
  // Row 2 i (+ 1) of a head here is row i (+ head_dim / 2) there.
  for (int head = 0; head < options.heads; ++head) {
    for (int i = 0; i < 8; ++i) {
      for (int k = 0; k < options.hidden; ++k) {
        const auto at = [&](int row) { return static_cast<size_t>((head * 16 + row) * options.hidden + k); };
        ASSERT_EQ(q_gguf[at(2 * i)], q_huggingface[at(i)]);
        ASSERT_EQ(q_gguf[at(2 * i + 1)], q_huggingface[at(i + 8)]);
      }
    }
  }
  EXPECT_EQ(values_of(gguf->tensors().at("blk.0.ffn_down.weight")),
            values_of(huggingface->tensors().at("model.layers.0.mlp.down_proj.weight")));
  EXPECT_EQ(values_of(gguf->tensors().at("blk.0.attn_q.bias"))[1],
            values_of(huggingface->tensors().at("model.layers.0.self_attn.q_proj.bias"))[8]);
  EXPECT_EQ(gguf->tensors().size(), huggingface->tensors().size() + 1) << "rope_freqs.weight";
  const auto factors = values_of(gguf->tensors().at("rope_freqs.weight"));
  EXPECT_EQ(factors.size(), 8u);
  EXPECT_EQ(factors.front(), 1.0f);
  EXPECT_EQ(factors.back(), 8.0f);
  EXPECT_EQ(huggingface->config()["rope_scaling"]["rope_type"], "llama3");
  EXPECT_EQ(gguf->config()["llama.attention.key_length"], 16);
  EXPECT_EQ(gguf->config()["tokenizer.ggml.tokens"].size(), 320u);
  EXPECT_EQ(huggingface->tokenizer_config()["eos_token"], "<|im_end|>");
}

TEST(RandomCheckpoint, EveryFormatOfGgufIsWrittenAndRead) {
  TestFolder folder;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                            DType::kQ5_1, DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    RandomLlamaOptions options{
        .layers = 1, .hidden = 256, .heads = 4, .kv_heads = 2, .head_dim = 64, .intermediate = 512, .dtype = dtype};
    const auto written = write_random_gguf(folder.file("m.gguf"), options);
    ASSERT_TRUE(written.has_value()) << written.error().to_string();
    const auto gguf = must_open(folder.file("m.gguf"));
    const auto& down = gguf->tensors().at("blk.0.ffn_down.weight");
    EXPECT_EQ(down.dtype, dtype);
    EXPECT_THAT(down.shape, testing::ElementsAre(256, 512));
    EXPECT_EQ(gguf->tensors().at("blk.0.ffn_norm.weight").dtype, DType::kF32);
    double squares = 0;
    for (const float value : values_of(down)) squares += value * value;
    EXPECT_NEAR(std::sqrt(squares / (256 * 512)), 1.5 / std::sqrt(512.0), 0.003);
  }
  RandomLlamaOptions mixed{.dtype = DType::kQ4_1, .embedding_dtype = DType::kQ8_0};
  ASSERT_TRUE(write_random_gguf(folder.file("m.gguf"), mixed).has_value());
  EXPECT_EQ(must_open(folder.file("m.gguf"))->tensors().at("token_embd.weight").dtype, DType::kQ8_0);
}

TEST(RandomCheckpoint, SeedsNamesAndIndicesAreIndependent) {
  const auto one = *make_random_tensors({.seed = 1});
  const auto again = *make_random_tensors({.seed = 1});
  const auto two = *make_random_tensors({.seed = 2});
  ASSERT_EQ(one.size(), again.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].values, again[i].values);
    EXPECT_NE(one[i].values, two[i].values);
  }
  const auto& gate = one[7].values;
  const auto& up = one[8].values;
  ASSERT_EQ(one[7].gguf_name, "blk.0.ffn_gate.weight");
  double dot = 0, gates = 0, mean = 0, neighbours = 0;
  for (size_t i = 0; i + 1 < gate.size(); ++i) {
    dot += gate[i] * up[i];
    gates += gate[i] * gate[i];
    neighbours += gate[i] * gate[i + 1];
    mean += gate[i];
  }
  const double limit = 4 / std::sqrt(static_cast<double>(gate.size()));  // four deviations
  EXPECT_LT(std::abs(dot / gates), limit);
  EXPECT_LT(std::abs(neighbours / gates), limit);
  EXPECT_LT(std::abs(mean) / std::sqrt(gates * static_cast<double>(gate.size())), limit);
  // A layer of a deeper model is the layer of a shallow one: weights depend on names, not on the order of drawing.
  const auto deep = *make_random_tensors({.layers = 5, .seed = 1});
  EXPECT_EQ(deep[8].values, up);
}

TEST(RandomCheckpoint, OptionsThatCanNotBeAreNamed) {
  TestFolder folder;
  const auto error = [&](const RandomLlamaOptions& options) {
    const auto written = write_random_gguf(folder.file("m.gguf"), options);
    return written.has_value() ? "written" : written.error().to_string();
  };
  EXPECT_THAT(error({.layers = 0}), HasSubstr("layers is 0"));
  EXPECT_THAT(error({.heads = 4, .kv_heads = 3}), HasSubstr("multiple of kv_heads"));
  EXPECT_THAT(error({.head_dim = 7}), HasSubstr("head_dim 7 even"));
  EXPECT_THAT(error({.vocab = 100}), HasSubstr("vocab is 100"));
  EXPECT_THAT(error({.dtype = DType::kQ4_K}), HasSubstr("rows of 64, which q4_k can't hold (blocks of 256)"));
  EXPECT_THAT(error({.dtype = DType::kI8}), HasSubstr("i8 can't hold"));
  EXPECT_THAT(error({.layers = 256, .hidden = 16384, .intermediate = 65536}), HasSubstr("too many"));
  EXPECT_THAT(write_random_huggingface(folder.file("hf"), {.dtype = DType::kQ8_0}).error().to_string(),
              HasSubstr("f32, f16 or bf16 weights, not q8_0"));
}

TEST(SmallTokenizer, MergesAreMadeOfTokensThatExist) {
  const auto tokenizer = *make_small_tokenizer(320);
  ASSERT_EQ(tokenizer.tokens.size(), 320u);
  const std::set<std::string> tokens(tokenizer.tokens.begin(), tokenizer.tokens.end());
  EXPECT_EQ(tokens.size(), 320u) << "no token twice";
  EXPECT_EQ(tokenizer.merges.size(), 44u);
  for (const auto& merge : tokenizer.merges) {
    const size_t space = merge.find(' ');
    EXPECT_TRUE(tokens.contains(merge.substr(0, space)) && tokens.contains(merge.substr(space + 1))) << merge;
  }
  EXPECT_EQ(tokenizer.tokens[3 + 'a'], "a");
  EXPECT_EQ(tokenizer.tokens[3 + ' '], "\u0120");  // GPT-2's spelling of a space
  EXPECT_EQ(tokenizer.tokens[3 + '\n'], "\u010a");
  EXPECT_EQ(tokenizer.tokens[3 + 0xad], "\u0143");  // the last of the unprintable ones
  EXPECT_EQ(tokenizer_json(tokenizer)["model"]["vocab"].size(), 320u);
  EXPECT_FALSE(make_small_tokenizer(258).has_value());
  EXPECT_EQ(make_small_tokenizer(259)->merges.size(), 0u);
}

}  // namespace
}  // namespace baton::weights
