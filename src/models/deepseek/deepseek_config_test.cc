// Configurations that contradict themselves or their tensors end in a message that names the key or the tensor.
#include "models/deepseek/deepseek_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/golden_checkpoint.h"
#include "models/model.h"

namespace baton::models {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// What loading a family's tiny checkpoint says once its text settings are patched (null takes a key away).
std::string error_of(const std::string& family, const nlohmann::json& patch) {
  const GoldenCheckpoint checkpoint(family);
  nlohmann::json config = read_json(checkpoint.path() + "/config.json");
  nlohmann::json& text = config.contains("text_config") ? config["text_config"] : config;
  text.merge_patch(patch);
  std::ofstream(checkpoint.path() + "/config.json") << config.dump();
  ComputePool pool({.threads = 1, .spin_us = 0});
  const auto model = load_model(checkpoint.path(), {.isa = tensor::detect_isa()}, pool);
  return model ? "it loaded" : model.error().to_string();
}

TEST(DeepseekConfig, ContradictionsNameTheirKey) {
  EXPECT_THAT(error_of("deepseek_v3", {{"num_experts_per_tok", 9}}), HasSubstr("9 experts a token of 8"));
  EXPECT_THAT(error_of("deepseek_v3", {{"n_group", 3}}), HasSubstr("groups must divide experts"));
  EXPECT_THAT(error_of("deepseek_v3", {{"topk_group", 5}}), HasSubstr("5 are kept"));
  EXPECT_THAT(error_of("deepseek_v3", {{"scoring_func", "sparsemax"}}), HasSubstr("\"sparsemax\""));
  EXPECT_THAT(error_of("deepseek_v3", {{"kv_lora_rank", nullptr}}), HasSubstr("kv_lora_rank is missing"));
  EXPECT_THAT(error_of("deepseek_v3", {{"kv_lora_rank", -64}}), HasSubstr("kv_lora_rank must be an integer"));
  EXPECT_THAT(error_of("deepseek_v3", {{"rope_scaling", {{"type", "spiral"}}}}), HasSubstr("\"spiral\""));
  EXPECT_THAT(error_of("deepseek_v32", {{"index_topk", 0}}), HasSubstr("index_topk must be"));
  EXPECT_THAT(error_of("deepseek_v32", {{"index_kpool", 3}}), HasSubstr("index_kpool 3"));
  EXPECT_THAT(error_of("deepseek_v32", {{"index_k_norm", "group"}}), HasSubstr("index_k_norm"));
  EXPECT_THAT(error_of("deepseek_v32", {{"index_top_k", 8}}),
              AllOf(HasSubstr("index_top_k is not a key of the indexer"), HasSubstr("index_topk,")));
  EXPECT_EQ(error_of("deepseek_v32", {{"index_kpool_always_select_tail", true}, {"index_topk_pattern", nullptr}}),
            "it loaded");
  EXPECT_THAT(error_of("deepseek_v32", {{"indexer_types", "full"}}), HasSubstr("indexer_types must be a list"));
  EXPECT_THAT(error_of("deepseek_v32", {{"routed_scaling_factor", 1e39}}), HasSubstr("fits fp32"));
  EXPECT_THAT(error_of("kimi_linear", {{"linear_attn_config", {{"kda_layers", "all"}}}}),
              HasSubstr("kda_layers must be a list"));
  EXPECT_THAT(error_of("kimi_k3", {{"linear_attn_config", {{"gate_lower_bound", -1e39}}}}), HasSubstr("fits fp32"));
  EXPECT_THAT(error_of("kimi_k3", {{"hidden_act", "gelu"}}), HasSubstr("hidden_act"));
  EXPECT_THAT(error_of("kimi_linear", {{"linear_attn_config", {{"full_attn_layers", {4, 99}}}}}), HasSubstr("99"));
  EXPECT_THAT(error_of("kimi_linear", {{"linear_attn_config", {{"kda_layers", {1, 2, 3, 4}}}}}),
              HasSubstr("contradict each other"));
  EXPECT_THAT(error_of("kimi_k3", {{"linear_attn_config", {{"gate_lower_bound", 5}}}}), HasSubstr("gate_lower_bound"));
}

TEST(DeepseekConfig, ATensorThatTheConfigurationDoesNotExplainIsNamed) {
  EXPECT_THAT(error_of("deepseek_v3", {{"q_lora_rank", 64}}),
              AllOf(HasSubstr("q_a_proj.weight"), HasSubstr("[48, 128]"), HasSubstr("[64, 128]")));
  EXPECT_THAT(error_of("deepseek_v3", {{"n_routed_experts", 4}, {"n_group", 1}, {"topk_group", 1}}),
              AllOf(HasSubstr("gate.weight has shape [8, 128]"), HasSubstr("asks for [4, 128]")));
  EXPECT_THAT(error_of("kimi_k31", {{"index_topk", nullptr}}), HasSubstr("indexer"));
  EXPECT_THAT(error_of("kimi_k3", {{"attn_res_block_size", nullptr}}),
              HasSubstr("self_attention_res_norm.weight [128] is not a tensor of this architecture"));
  EXPECT_THAT(error_of("deepseek_v3", {{"num_hidden_layers", 5}}), HasSubstr("layers.4."));
}

}  // namespace
}  // namespace baton::models
