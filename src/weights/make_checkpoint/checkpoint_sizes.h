// The families whose checkpoints can be made, and every number that shapes one.
//
// A size that an architecture doesn't have is 0. The tables of this file are the flags of `baton make-checkpoint`, the
// range checks and the defaults at once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace baton::weights {

enum class CheckpointArch : uint8_t {
  kLlama,
  kDeepseekV3,   // R1 too
  kDeepseekV32,  // with the indexer
  kKimiK2,
  kKimiK25,  // K2.6 too
  kKimiLinear,
  kKimiK3,
  kKimiK31,  // K3 with an indexer on its full-attention layers; the real one's configuration is not public
};
inline constexpr int kCheckpointArchs = 8;

std::string_view checkpoint_arch_name(CheckpointArch arch);  // "kimi_k3"
std::optional<CheckpointArch> parse_checkpoint_arch(std::string_view name);
std::string checkpoint_arch_list();  // "llama, deepseek_v3, ..."

struct CheckpointSizes {
  int layers = 0;
  int hidden = 0;
  int intermediate = 0;  // of dense MLPs
  int vocab = 0;
  int max_positions = 0;
  int heads = 0;
  // llama
  int kv_heads = 0;
  int head_dim = 0;
  // MLA
  int q_lora_rank = 0;  // 0: queries are projected directly
  int kv_lora_rank = 0;
  int nope_dim = 0;
  int rope_dim = 0;
  int v_dim = 0;
  int yarn_factor = 0;  // at most 1: plain rotary embedding
  int yarn_original_positions = 0;
  // KDA
  int linear_heads = 0;
  int linear_head_dim = 0;
  int conv_width = 0;
  int full_attention_period = 0;  // every so-many-th layer, and the last, attends fully
  // MoE
  int dense_layers = 0;  // the first ones
  int experts = 0;
  int experts_per_token = 0;
  int expert_groups = 0;
  int groups_per_token = 0;
  int shared_experts = 0;
  int moe_intermediate = 0;
  int routed_hidden = 0;  // LatentMoE
  int attn_res_block = 0;
  // DSA
  int index_heads = 0;
  int index_head_dim = 0;
  int index_topk = 0;
  int mtp_layers = 0;  // after the others
  // Vision tower of the multi-modal classes, which text models carry along; 0 layers: none
  int vision_layers = 0;
  int vision_hidden = 0;
  int vision_heads = 0;
  int vision_qkv = 0;  // width of its queries
  int vision_intermediate = 0;
};

// One size by name, as a flag spells it: "q-lora-rank".
struct CheckpointSizeField {
  std::string_view flag;
  int CheckpointSizes::* member;
  int least;
  int most;
  std::string_view help;
};
std::span<const CheckpointSizeField> checkpoint_size_fields();
// Whether the architecture has this size at all.
bool has_size(CheckpointArch arch, const CheckpointSizeField& field);

// Small enough for a test; every part of the architecture is there. Inner dimensions are multiples of 128, so that
// every weight format can hold them.
CheckpointSizes tiny_sizes(CheckpointArch arch);
// As the published configuration.
CheckpointSizes published_sizes(CheckpointArch arch);

// kInvalidArgument names the flag that can't be, with what is possible.
Result<void> check_sizes(CheckpointArch arch, const CheckpointSizes& sizes);

// What the tables and writers ask of an architecture.
bool is_llama(CheckpointArch arch);
bool is_kimi_linear_kind(CheckpointArch arch);  // KDA layers: Kimi Linear, K3, K3.1
bool is_k3_kind(CheckpointArch arch);
bool has_indexer(CheckpointArch arch);
bool has_vision(CheckpointArch arch);
bool is_full_attention(const CheckpointSizes& sizes, int layer);  // of the KDA kind; zero-based

}  // namespace baton::weights
