// A random checkpoint must have the published layout: counts and shapes are those of the released checkpoints.
#include "weights/make_checkpoint/make_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "tensor/float_convert.h"
#include "weights/checkpoint.h"
#include "weights/make_checkpoint/config_files.h"
#include "weights/make_checkpoint/tensor_plan.h"
#include "weights/random_checkpoint.h"
#include "weights/test_files.h"

namespace baton::weights {
namespace {

using tensor::DType;
using testing::AllOf;
using testing::HasSubstr;
using Arch = CheckpointArch;

constexpr Arch kAll[] = {Arch::kLlama,   Arch::kDeepseekV3, Arch::kDeepseekV32, Arch::kKimiK2,
                         Arch::kKimiK25, Arch::kKimiLinear, Arch::kKimiK3,      Arch::kKimiK31};

std::map<std::string, PlannedTensor> published_plan(Arch arch) {
  std::map<std::string, PlannedTensor> by_name;
  for (auto& tensor : plan_tensors(arch, published_sizes(arch), DType::kBF16)) {
    const std::string name = tensor.name;
    by_name.emplace(name, std::move(tensor));
  }
  return by_name;
}

int64_t elements(const PlannedTensor& tensor) {
  int64_t count = 1;
  for (const int64_t dim : tensor.shape) count *= dim;
  return count;
}

double billions(const std::map<std::string, PlannedTensor>& plan) {
  double sum = 0;
  for (const auto& [name, tensor] : plan) sum += static_cast<double>(elements(tensor));
  return sum / 1e9;
}

void expect_shapes(const std::map<std::string, PlannedTensor>& plan,
                   const std::map<std::string, std::vector<int64_t>>& expected) {
  for (const auto& [name, shape] : expected) {
    const auto it = plan.find(name);
    ASSERT_NE(it, plan.end()) << name;
    EXPECT_EQ(it->second.shape, shape) << name;
  }
}

// moonshotai/Kimi-K3, revision f831ab66: 2,122 bf16 tensors, 506 f32, and
// 494,592 u8: weight_packed and weight_scale of every routed expert's three matrices.
TEST(PublishedLayout, KimiK3HasTheReleasedCheckpointsTensors) {
  const auto plan = published_plan(Arch::kKimiK3);
  int bf16 = 0, f32 = 0, experts = 0;
  for (const auto& [name, tensor] : plan) {
    const bool vision = name.starts_with("vision_tower.") || name.starts_with("mm_projector.");
    ASSERT_TRUE(vision || name.starts_with("language_model.")) << name;
    if (name.find(".experts.") != std::string::npos) {
      ++experts;
    } else {
      ++(tensor.dtype == DType::kF32 ? f32 : bf16);
    }
  }
  EXPECT_EQ(bf16, 2122);
  EXPECT_EQ(f32, 506);
  EXPECT_EQ(experts * 2, 494592);
  const std::string layer = "language_model.model.layers.";
  expect_shapes(plan, {{layer + "0.mlp.down_proj.weight", {7168, 33792}},
                       {layer + "0.self_attn.A_log", {128}},
                       {layer + "1.self_attn.q_conv1d.weight", {12288, 1, 4}},
                       {layer + "1.self_attn.f_b_proj.weight", {12288, 128}},
                       {layer + "1.self_attention_res_proj.weight", {1, 7168}},
                       {layer + "3.self_attn.q_b_proj.weight", {18432, 1536}},
                       {layer + "3.self_attn.kv_a_proj_with_mqa.weight", {576, 7168}},
                       {layer + "91.self_attn.kv_b_proj.weight", {24576, 512}},
                       {layer + "92.self_attn.g_proj.weight", {12288, 7168}},
                       {layer + "92.self_attn.o_proj.weight", {7168, 12288}},
                       {layer + "92.block_sparse_moe.gate.weight", {896, 7168}},
                       {layer + "92.block_sparse_moe.routed_expert_down_proj.weight", {3584, 7168}},
                       {layer + "92.block_sparse_moe.shared_experts.down_proj.weight", {7168, 6144}},
                       {layer + "92.block_sparse_moe.experts.895.w1.weight", {3072, 3584}},
                       {layer + "92.block_sparse_moe.experts.895.w2.weight", {3584, 3072}},
                       {"language_model.model.output_attn_res_proj.weight", {1, 7168}},
                       {"vision_tower.encoder.blocks.26.wqkv.weight", {4608, 1024}},
                       {"vision_tower.encoder.blocks.26.wo.weight", {1024, 1536}},
                       {"vision_tower.patch_embed.pos_emb.weight", {64, 64, 1024}},
                       {"mm_projector.proj.2.weight", {7168, 4096}},
                       {"language_model.lm_head.weight", {163840, 7168}}});
  EXPECT_FALSE(plan.contains(layer + "2.self_attn.q_a_proj.weight")) << "the third layer is KDA";
  EXPECT_NEAR(billions(plan), 2780, 15);  // "about 2.78T"
}

// moonshotai/Kimi-K2.5: 208,550 tensors; a packed matrix is three tensors.
TEST(PublishedLayout, KimiK25HasTheReleasedCheckpointsTensors) {
  const auto plan = published_plan(Arch::kKimiK25);
  int64_t files_tensors = 0;
  for (const auto& [name, tensor] : plan) files_tensors += name.find(".experts.") != std::string::npos ? 3 : 1;
  EXPECT_EQ(files_tensors, 208550);
  const std::string layer = "language_model.model.layers.";
  expect_shapes(plan, {{layer + "0.self_attn.q_b_proj.weight", {12288, 1536}},
                       {layer + "60.self_attn.kv_b_proj.weight", {16384, 512}},
                       {layer + "60.self_attn.o_proj.weight", {7168, 8192}},
                       {layer + "60.mlp.gate.e_score_correction_bias", {384}},
                       {"vision_tower.encoder.blocks.26.wqkv.bias", {3456}},
                       {"vision_tower.encoder.blocks.26.mlp.fc0.weight", {4304, 1152}},
                       {"mm_projector.proj.0.weight", {4608, 4608}},
                       {"mm_projector.pre_norm.bias", {1152}},
                       {layer + "60.mlp.experts.383.down_proj.weight", {7168, 2048}}});
}

// deepseek-ai/DeepSeek-V3: 671 billion parameters and 14 of the prediction layer with its copies; V3.2's indexer.
TEST(PublishedLayout, DeepseekHasTheReleasedCheckpointsParameters) {
  EXPECT_NEAR(billions(published_plan(Arch::kDeepseekV3)), 684.5, 1.5);
  expect_shapes(published_plan(Arch::kDeepseekV32),
                {{"model.layers.60.self_attn.indexer.wq_b.weight", {8192, 1536}},
                 {"model.layers.60.self_attn.indexer.wk.weight", {128, 7168}},
                 {"model.layers.60.self_attn.indexer.k_norm.bias", {128}},
                 {"model.layers.60.self_attn.indexer.weights_proj.weight", {64, 7168}},
                 {"model.layers.60.self_attn.q_b_proj.weight", {24576, 1536}},
                 {"model.layers.60.self_attn.kv_b_proj.weight", {32768, 512}},
                 {"model.layers.61.eh_proj.weight", {7168, 14336}},
                 {"model.layers.61.shared_head.head.weight", {129280, 7168}},
                 {"model.layers.61.mlp.experts.255.up_proj.weight", {2048, 7168}}});
}

TEST(PublishedLayout, KimiLinearIsTheFortyEightBillionModel) {
  const auto plan = published_plan(Arch::kKimiLinear);
  EXPECT_NEAR(billions(plan), 49, 1);
  expect_shapes(plan, {{"model.layers.3.self_attn.q_proj.weight", {6144, 2304}},
                       {"model.layers.26.self_attn.kv_b_proj.weight", {8192, 512}},
                       {"model.layers.0.self_attn.A_log", {1, 1, 32, 1}},
                       {"model.layers.0.self_attn.g_b_proj.weight", {4096, 128}},
                       {"model.layers.1.block_sparse_moe.experts.0.w1.weight", {1024, 2304}}});
}

// The text_config of moonshotai/Kimi-K3's config.json.
TEST(PublishedLayout, KimiK3ConfigurationHasThePublishedKeys) {
  const auto config = random_config_json(Arch::kKimiK3, published_sizes(Arch::kKimiK3), DType::kBF16);
  EXPECT_EQ(config["architectures"][0], "KimiK3ForConditionalGeneration");
  const auto& text = config["text_config"];
  const auto published = nlohmann::json::parse(R"({
    "model_type": "kimi_linear", "hidden_size": 7168, "num_hidden_layers": 93, "intermediate_size": 33792,
    "num_attention_heads": 96, "num_key_value_heads": 96, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "mla_use_nope": true,
    "mla_use_output_gate": true, "hidden_act": "situ", "activation_situ_beta": 4.0,
    "activation_situ_linear_beta": 25.0, "attn_res_block_size": 12, "first_k_dense_replace": 1, "moe_layer_freq": 1,
    "num_experts": 896, "num_experts_per_token": 16, "num_shared_experts": 2, "moe_intermediate_size": 3072,
    "routed_expert_hidden_size": 3584, "latent_moe_use_norm": true, "moe_renormalize": true,
    "moe_router_activation_func": "sigmoid", "topk_method": "noaux_tc", "use_grouped_topk": true,
    "num_expert_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0, "num_nextn_predict_layers": 0,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 1048576, "vocab_size": 163840})");
  for (const auto& [key, value] : published.items()) EXPECT_EQ(nlohmann::json(text[key]), value) << key;
  const auto& linear = text["linear_attn_config"];
  EXPECT_EQ(linear["full_attn_layers"].size(), 24u);
  EXPECT_EQ(linear["full_attn_layers"].back(), 93);
  EXPECT_EQ(linear["full_attn_layers"][22], 92);
  EXPECT_EQ(linear["kda_layers"].size(), 69u);
  EXPECT_EQ(linear["gate_lower_bound"], -5.0);
}

class MakeCheckpoint : public testing::Test {
 protected:
  Result<MadeCheckpoint> make(const std::string& name, MakeCheckpointOptions options, int threads = 2) {
    ComputePool pool({.threads = threads, .spin_us = 0});
    return make_checkpoint(folder_.file(name), options, pool);
  }
  std::string error(MakeCheckpointOptions options) {
    const auto made = make("bad", options, 1);
    return made.has_value() ? "made" : made.error().to_string();
  }
  std::unique_ptr<Checkpoint> open(const std::string& name) {
    auto opened = open_checkpoint(folder_.file(name));
    EXPECT_TRUE(opened.has_value()) << opened.error().to_string();
    return opened.has_value() ? std::move(*opened) : nullptr;
  }
  TestFolder folder_;
};

TEST_F(MakeCheckpoint, EveryFamilyCanBeOpened) {
  for (const Arch arch : kAll) {
    const std::string name(checkpoint_arch_name(arch));
    const auto made = make(name, {.arch = arch, .sizes = tiny_sizes(arch)});
    ASSERT_TRUE(made.has_value()) << name << ": " << made.error().to_string();
    const auto checkpoint = open(name);
    ASSERT_NE(checkpoint, nullptr);
    EXPECT_EQ(std::ssize(checkpoint->tensors()), made->tensors);
    EXPECT_EQ(made->files, 1);
    EXPECT_TRUE(std::filesystem::exists(folder_.file(name + "/tokenizer.json")));
  }
}

bool same_tensors(const Checkpoint& a, const Checkpoint& b) {
  if (a.tensors().size() != b.tensors().size()) return false;
  for (const auto& [name, entry] : a.tensors()) {
    const auto it = b.tensors().find(name);
    if (it == b.tensors().end() || it->second.shape != entry.shape || it->second.dtype != entry.dtype ||
        std::memcmp(it->second.data, entry.data, static_cast<size_t>(entry.bytes)) != 0) {
      return false;
    }
  }
  return true;
}

TEST_F(MakeCheckpoint, ShardsAndThreadsDoNotChangeAValueAndSeedsDo) {
  const MakeCheckpointOptions base{.arch = Arch::kKimiK31, .sizes = tiny_sizes(Arch::kKimiK31)};
  auto sharded = base;
  sharded.shard_bytes = 1'000'000;
  auto other = base;
  other.seed = 2;
  ASSERT_TRUE(make("one", base, 1).has_value());
  const auto made = make("many", sharded, 3);
  ASSERT_TRUE(made.has_value()) << made.error().to_string();
  EXPECT_GT(made->files, 5);
  ASSERT_TRUE(make("other", other, 1).has_value());
  const auto one = open("one");
  EXPECT_TRUE(std::filesystem::exists(folder_.file("many/model.safetensors.index.json")));
  EXPECT_TRUE(same_tensors(*one, *open("many")));
  EXPECT_FALSE(same_tensors(*one, *open("other")));
}

TEST_F(MakeCheckpoint, LlamaIsTheRandomLlamaOfTheSameSeed) {
  const auto sizes = tiny_sizes(Arch::kLlama);
  ASSERT_TRUE(make("made", {.arch = Arch::kLlama, .sizes = sizes, .seed = 7}).has_value());
  ASSERT_TRUE(write_random_huggingface(folder_.file("written"), {.layers = sizes.layers,
                                                                 .hidden = sizes.hidden,
                                                                 .heads = sizes.heads,
                                                                 .kv_heads = sizes.kv_heads,
                                                                 .head_dim = sizes.head_dim,
                                                                 .intermediate = sizes.intermediate,
                                                                 .vocab = sizes.vocab,
                                                                 .tied = false,
                                                                 .seed = 7,
                                                                 .dtype = DType::kBF16})
                  .has_value());
  EXPECT_TRUE(same_tensors(*open("made"), *open("written")));
}

TEST_F(MakeCheckpoint, ValuesHaveTheirDeviationInEveryFormat) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const std::string name(tensor::dtype_name(dtype));
    ASSERT_TRUE(make(name, {.arch = Arch::kDeepseekV32, .sizes = tiny_sizes(Arch::kDeepseekV32), .dtype = dtype}));
    const auto checkpoint = open(name);
    const auto& entry = checkpoint->tensors().at("model.layers.1.mlp.experts.3.down_proj.weight");
    ASSERT_EQ(entry.dtype, dtype);
    double squares = 0;
    const int64_t count = entry.shape[0] * entry.shape[1];
    for (int64_t i = 0; i < count; ++i) {
      float value = 0;
      uint16_t half = 0;
      std::memcpy(&value, entry.data + i * (dtype == DType::kF32 ? 4 : 2), dtype == DType::kF32 ? 4 : 2);
      std::memcpy(&half, entry.data + i * 2, 2);
      if (dtype == DType::kF16) value = tensor::f16_to_float(half);
      if (dtype == DType::kBF16) value = tensor::bf16_to_float(half);
      squares += value * value;
    }
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(count)), 1.5 / std::sqrt(128.0), 0.002) << name;
    EXPECT_EQ(checkpoint->tensors().at("model.layers.1.mlp.gate.e_score_correction_bias").dtype, DType::kF32);
  }
}

TEST_F(MakeCheckpoint, SizesThatCanNotBeAreNamed) {
  const auto with = [](Arch arch, int CheckpointSizes::* member, int value) {
    MakeCheckpointOptions options{.arch = arch, .sizes = tiny_sizes(arch)};
    options.sizes.*member = value;
    return options;
  };
  EXPECT_THAT(error(with(Arch::kKimiK3, &CheckpointSizes::layers, 0)), HasSubstr("--layers is 0; 1 to 256"));
  EXPECT_THAT(error(with(Arch::kKimiK3, &CheckpointSizes::index_heads, 4)), HasSubstr("kimi_k3 has no --index-heads"));
  EXPECT_THAT(error(with(Arch::kLlama, &CheckpointSizes::experts, 4)), HasSubstr("llama has no --experts"));
  EXPECT_THAT(error(with(Arch::kDeepseekV3, &CheckpointSizes::experts, 9)), HasSubstr("multiple of --expert-groups 4"));
  EXPECT_THAT(error(with(Arch::kDeepseekV3, &CheckpointSizes::experts_per_token, 5)),
              HasSubstr("more than the 4 experts a token can choose from"));
  EXPECT_THAT(error(with(Arch::kKimiK31, &CheckpointSizes::q_lora_rank, 0)), HasSubstr("--q-lora-rank can't be 0"));
  EXPECT_THAT(error(with(Arch::kKimiLinear, &CheckpointSizes::rope_dim, 15)), HasSubstr("must be even"));
  EXPECT_THAT(error(with(Arch::kKimiLinear, &CheckpointSizes::vocab, 100)), HasSubstr("--vocab is 100; 259 to"));
  EXPECT_THAT(error({.arch = Arch::kLlama, .sizes = tiny_sizes(Arch::kLlama), .dtype = DType::kI8}),
              HasSubstr("not i8"));
}

TEST_F(MakeCheckpoint, AFolderThatHoldsAModelIsLeftAlone) {
  const MakeCheckpointOptions options{.arch = Arch::kLlama, .sizes = tiny_sizes(Arch::kLlama)};
  ASSERT_TRUE(make("twice", options).has_value());
  const auto again = make("twice", options);
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code(), Code::kAlreadyExists);
}

TEST_F(MakeCheckpoint, MoreThanTheDiskHoldsIsRefusedBeforeAnythingIsWritten) {
  MakeCheckpointOptions options{.arch = Arch::kLlama, .sizes = published_sizes(Arch::kLlama)};
  options.sizes.hidden = 32768;
  options.sizes.intermediate = 131072;
  options.sizes.layers = 256;  // 7 TB
  const auto made = make("huge", options);
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error().to_string(), AllOf(HasSubstr("resource_exhausted"), HasSubstr("are free")));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.file("huge")));
}

}  // namespace
}  // namespace baton::weights
