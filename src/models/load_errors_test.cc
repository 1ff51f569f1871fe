// A checkpoint that is wrong must be refused with words that say what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/layers/rope_table.h"
#include "models/model.h"
#include "models/tiny_checkpoint.h"

namespace baton::models {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Tensors = std::vector<weights::TensorSource>;

Status error_of(const TinySpec& spec, LoadOptions options = {}) {
  const TinyCheckpoint checkpoint(spec);
  if (!checkpoint.written()) return checkpoint.written().error();
  ComputePool pool({.threads = 1});
  const auto model = load_model(checkpoint.path(), options, pool);
  return model ? Status(Code::kInternal, "loaded") : model.error();
}

auto erase(std::string name) {
  return [name](Tensors& tensors) { std::erase_if(tensors, [&](const auto& tensor) { return tensor.name == name; }); };
}

TEST(LoadErrors, AMissingTensorIsNamed) {
  const Status hf = error_of({.damage = erase("model.layers.1.self_attn.v_proj.weight")});
  EXPECT_EQ(hf.code(), Code::kDataLoss);
  EXPECT_THAT(hf.message(), HasSubstr("model.layers.1.self_attn.v_proj.weight [32, 64] is missing"));
  const Status gguf = error_of({.gguf = true, .damage = erase("blk.0.ffn_norm.weight")});
  EXPECT_THAT(gguf.message(), HasSubstr("blk.0.ffn_norm.weight [64] is missing"));
  EXPECT_THAT(error_of({.gguf = true, .damage = erase("token_embd.weight")}).message(),
              HasSubstr("token_embd.weight is missing"));
}

TEST(LoadErrors, AnExtraTensorIsNamed) {
  const auto add = [](std::string name) {
    return [name](Tensors& tensors) {
      tensors.push_back(tensors.back());
      tensors.back().name = name;
    };
  };
  EXPECT_THAT(error_of({.damage = add("model.layers.0.self_attn.q_norm.weight")}).message(),
              HasSubstr("model.layers.0.self_attn.q_norm.weight [64, 96] is not a tensor of this architecture"));
  EXPECT_THAT(error_of({.damage = add("model.layers.2.mlp.up_proj.weight")}).message(), HasSubstr("layers.2.mlp.up"));
  EXPECT_EQ(error_of({.damage = add("model.layers.0.self_attn.rotary_emb.inv_freq")}).message(), "loaded");
  EXPECT_EQ(error_of({.tied = true, .damage = add("lm_head.weight")}).message(), "loaded");
}

TEST(LoadErrors, AMisshapedTensorIsNamedWithBothShapes) {
  const Status status = error_of({.damage = [](Tensors& tensors) {
    for (auto& tensor : tensors) {
      if (tensor.name == "model.layers.0.mlp.down_proj.weight") tensor.shape = {96, 64};
    }
  }});
  EXPECT_THAT(status.message(),
              HasSubstr("model.layers.0.mlp.down_proj.weight has shape [96, 64], the configuration asks for [64, 96]"));
}

TEST(LoadErrors, AnUnknownArchitectureIsNamedWithWhatThereIs) {
  EXPECT_THAT(error_of({.config_patch = {{"architectures", {"Gemma9ForCausalLM"}}}}).message(),
              AllOf(HasSubstr("\"Gemma9ForCausalLM\""), HasSubstr("LlamaForCausalLM")));
  EXPECT_THAT(error_of({.gguf = true, .gguf_architecture = "mamba"}).message(),
              AllOf(HasSubstr("\"mamba\""), HasSubstr("llama")));
  EXPECT_THAT(error_of({.config_patch = {{"architectures", nullptr}}}).message(), HasSubstr("architectures"));
}

TEST(LoadErrors, AWrongConfigurationNamesItsKey) {
  const auto message = [](nlohmann::json patch) { return error_of({.config_patch = std::move(patch)}).message(); };
  EXPECT_THAT(message({{"hidden_size", nullptr}}), HasSubstr("hidden_size is missing"));
  EXPECT_THAT(message({{"num_hidden_layers", -1}}), HasSubstr("num_hidden_layers must be an integer"));
  EXPECT_THAT(message({{"num_hidden_layers", 18446744073709551615u}}), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(message({{"vocab_size", "many"}}), HasSubstr("vocab_size must be"));
  EXPECT_THAT(message({{"num_key_value_heads", 3}}), HasSubstr("not a multiple"));
  EXPECT_THAT(message({{"head_dim", 7}}), HasSubstr("must be even"));
  EXPECT_THAT(message({{"rms_norm_eps", 0}}), HasSubstr("rms_norm_eps"));
  EXPECT_THAT(message({{"rms_norm_eps", 1e39}}), HasSubstr("rms_norm_eps must be a number above 0 that fits fp32"));
  EXPECT_THAT(message({{"rms_norm_eps", 1e-60}}), HasSubstr("rms_norm_eps"));
  EXPECT_THAT(message({{"hidden_act", "gelu"}}), HasSubstr("hidden_act"));
  EXPECT_THAT(message({{"sliding_window", 4096}}), HasSubstr("sliding_window"));
  EXPECT_THAT(message({{"quantization_config", {{"quant_method", "awq"}}}}), HasSubstr("quantization_config"));
  EXPECT_THAT(message({{"rope_scaling", {{"rope_type", "yarn"}}}}), HasSubstr("rope_type is \"yarn\""));
  EXPECT_THAT(message({{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}}}),
              HasSubstr("rope_scaling: low_freq_factor is missing"));
  EXPECT_THAT(message({{"rope_scaling", 3}}), HasSubstr("rope_scaling must be an object"));
  EXPECT_THAT(message({{"torch_dtype", "int8"}}), HasSubstr("dtype"));
}

TEST(LoadErrors, WrongRopeFactorsAreRefused) {
  EXPECT_THAT(error_of({.gguf = true, .rope_factors = {1, 2}}).message(), HasSubstr("rope_freqs.weight is f32 [2]"));
  EXPECT_THAT(error_of({.gguf = true, .rope_factors = {1, 2, 3, 4, 5, 6, 7, 0}}).message(), HasSubstr("above 0"));
}

TEST(LoadErrors, MorePositionsThanTheCheckpointHasAreRefused) {
  const Status status = error_of({}, {.max_positions = 1024});
  EXPECT_EQ(status.code(), Code::kOutOfRange);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("1024"), HasSubstr("512")));
}

TEST(LoadErrors, ProgressEndsAtTheTotal) {
  const TinyCheckpoint checkpoint({.gguf = true, .dtype = tensor::DType::kQ8_0});
  ComputePool pool({.threads = 2, .spin_us = 0});
  int64_t last = 0, total = -1;
  LoadOptions options;
  options.progress = [&](int64_t done, int64_t all) {
    EXPECT_GT(done, last);
    last = done;
    total = all;
  };
  const auto model = load_model(checkpoint.path(), options, pool);
  ASSERT_TRUE(model.has_value()) << model.error().to_string();
  EXPECT_EQ(last, total);
  EXPECT_GT((*model)->weight_bytes(), total / 2);
  EXPECT_FALSE((*model)->prepare(0, 1, 1).has_value());
}

// Worked by hand from the formula of the Llama 3.1 model card: theta 500000, 64 pairs, factor 8, low 1, high 4, 8192.
TEST(RopeTable, Llama3KeepsShortWavesAndStretchesLongOnes) {
  RopeSpec spec{.rope_dim = 128, .theta = 500000, .llama3 = Llama3RopeScaling{}};
  const auto scaled = rope_frequencies(spec);
  spec.llama3.reset();
  const auto plain = rope_frequencies(spec);
  EXPECT_EQ(scaled[0], plain[0]);
  EXPECT_EQ(scaled[28], plain[28]);      // wavelength 1954 < 2048
  EXPECT_LT(scaled[29], plain[29]);      // 2399: blended
  EXPECT_GT(scaled[34], plain[34] / 8);  // 6692: blended
  EXPECT_EQ(scaled[35], plain[35] / 8);  // 8214 > 8192
  EXPECT_EQ(scaled[63], plain[63] / 8);
  const auto table = rope_table({.rope_dim = 4, .theta = 10000}, 3);
  EXPECT_FLOAT_EQ(table[2 * 4 + 0], -0.41614684f);  // cos 2
  EXPECT_FLOAT_EQ(table[2 * 4 + 2], 0.90929743f);   // sin 2
  EXPECT_FLOAT_EQ(table[2 * 4 + 3], 0.01999867f);   // sin 0.02
}

}  // namespace
}  // namespace baton::models
