#include "weights/make_checkpoint/checkpoint_sizes.h"

#include <array>

#include "weights/small_tokenizer.h"

namespace baton::weights {
namespace {

using Sizes = CheckpointSizes;
using Field = CheckpointSizeField;

constexpr std::array<std::string_view, kCheckpointArchs> kNames{"llama",    "deepseek_v3", "deepseek_v32", "kimi_k2",
                                                                "kimi_k25", "kimi_linear", "kimi_k3",      "kimi_k31"};

constexpr std::array kFields = {
    Field{"layers", &Sizes::layers, 1, 256, "Decoder layers (multi-token prediction layers apart)"},
    Field{"hidden", &Sizes::hidden, 16, 32768, "Width of the residual stream"},
    Field{"intermediate", &Sizes::intermediate, 16, 131072, "Width of dense MLPs"},
    Field{"vocab", &Sizes::vocab, SmallTokenizer::kVocabMin, 1 << 20, "Tokens in the vocabulary"},
    Field{"max-positions", &Sizes::max_positions, 1, 1 << 24, "Longest sequence"},
    Field{"heads", &Sizes::heads, 1, 512, "Attention heads"},
    Field{"kv-heads", &Sizes::kv_heads, 1, 512, "Heads of keys and values (llama)"},
    Field{"head-dim", &Sizes::head_dim, 2, 512, "Dimension of a head (llama)"},
    Field{"q-lora-rank", &Sizes::q_lora_rank, 0, 16384, "Rank of MLA's queries; 0 projects them directly"},
    Field{"kv-lora-rank", &Sizes::kv_lora_rank, 16, 4096, "Rank of MLA's latent"},
    Field{"qk-nope-head-dim", &Sizes::nope_dim, 1, 512, "Dimensions of an MLA head without rotation"},
    Field{"qk-rope-head-dim", &Sizes::rope_dim, 2, 256,
          "Shared dimensions of an MLA key (rotated where there is rope)"},
    Field{"v-head-dim", &Sizes::v_dim, 1, 512, "Dimension of an MLA value"},
    Field{"yarn-factor", &Sizes::yarn_factor, 0, 1024, "Yarn's factor; 0 or 1 is plain rotary embedding"},
    Field{"yarn-original-positions", &Sizes::yarn_original_positions, 1, 1 << 24, "Positions before yarn"},
    Field{"linear-heads", &Sizes::linear_heads, 1, 512, "Heads of a KDA layer"},
    Field{"linear-head-dim", &Sizes::linear_head_dim, 1, 512, "Dimension of a KDA head"},
    Field{"conv-width", &Sizes::conv_width, 2, 8, "Taps of KDA's short convolutions"},
    Field{"full-attention-period", &Sizes::full_attention_period, 1, 256,
          "Every so-many-th layer, and the last, is an MLA layer; the others are KDA"},
    Field{"dense-layers", &Sizes::dense_layers, 0, 256, "Layers before the first with experts"},
    Field{"experts", &Sizes::experts, 1, 4096, "Routed experts of a layer"},
    Field{"experts-per-token", &Sizes::experts_per_token, 1, 256, "Routed experts that a token takes"},
    Field{"expert-groups", &Sizes::expert_groups, 1, 64, "Groups of experts"},
    Field{"groups-per-token", &Sizes::groups_per_token, 1, 64, "Groups that a token may choose from"},
    Field{"shared-experts", &Sizes::shared_experts, 0, 64, "Shared experts, as one MLP of so many widths"},
    Field{"moe-intermediate", &Sizes::moe_intermediate, 16, 32768, "Width of an expert"},
    Field{"routed-hidden", &Sizes::routed_hidden, 16, 32768, "LatentMoE: the width that routed experts work in"},
    Field{"attn-res-block", &Sizes::attn_res_block, 1, 256, "Layers per block of attention residuals"},
    Field{"index-heads", &Sizes::index_heads, 1, 256, "Heads of the sparse-attention indexer"},
    Field{"index-head-dim", &Sizes::index_head_dim, 2, 512, "Dimension of an indexer head"},
    Field{"index-topk", &Sizes::index_topk, 1, 1 << 20, "Positions that a row attends to"},
    Field{"mtp-layers", &Sizes::mtp_layers, 0, 4, "Multi-token prediction layers"},
    Field{"vision-layers", &Sizes::vision_layers, 0, 64, "Blocks of the vision tower; 0 leaves it out"},
    Field{"vision-hidden", &Sizes::vision_hidden, 2, 4096, "Width of the vision tower"},
    Field{"vision-heads", &Sizes::vision_heads, 1, 64, "Heads of the vision tower"},
    Field{"vision-qkv", &Sizes::vision_qkv, 1, 4096, "Width of the vision tower's queries"},
    Field{"vision-intermediate", &Sizes::vision_intermediate, 1, 16384, "Width of the vision tower's MLPs"},
};

Sizes mla_moe(Sizes sizes, int heads, int layers) {
  sizes.heads = heads;
  sizes.layers = layers;
  return sizes;
}

constexpr Sizes kTinyLlama{.layers = 2,
                           .hidden = 256,
                           .intermediate = 384,
                           .vocab = 320,
                           .max_positions = 4096,
                           .heads = 4,
                           .kv_heads = 2,
                           .head_dim = 64};
constexpr Sizes kTinyDeepseek{.layers = 4,
                              .hidden = 256,
                              .intermediate = 384,
                              .vocab = 320,
                              .max_positions = 4096,
                              .heads = 4,
                              .q_lora_rank = 128,
                              .kv_lora_rank = 128,
                              .nope_dim = 48,
                              .rope_dim = 16,
                              .v_dim = 32,
                              .yarn_factor = 4,
                              .yarn_original_positions = 1024,
                              .dense_layers = 1,
                              .experts = 8,
                              .experts_per_token = 3,
                              .expert_groups = 4,
                              .groups_per_token = 2,
                              .shared_experts = 1,
                              .moe_intermediate = 128};
constexpr Sizes kTinyKimiLinear{.layers = 6,
                                .hidden = 256,
                                .intermediate = 384,
                                .vocab = 320,
                                .max_positions = 4096,
                                .heads = 4,
                                .kv_lora_rank = 128,
                                .nope_dim = 48,
                                .rope_dim = 16,
                                .v_dim = 32,
                                .linear_heads = 4,
                                .linear_head_dim = 32,
                                .conv_width = 4,
                                .full_attention_period = 4,
                                .dense_layers = 1,
                                .experts = 8,
                                .experts_per_token = 3,
                                .expert_groups = 1,
                                .groups_per_token = 1,
                                .shared_experts = 1,
                                .moe_intermediate = 128};

constexpr Sizes kLlama8b{.layers = 32,
                         .hidden = 4096,
                         .intermediate = 14336,
                         .vocab = 128256,
                         .max_positions = 131072,
                         .heads = 32,
                         .kv_heads = 8,
                         .head_dim = 128};
constexpr Sizes kDeepseekV3{.layers = 61,
                            .hidden = 7168,
                            .intermediate = 18432,
                            .vocab = 129280,
                            .max_positions = 163840,
                            .heads = 128,
                            .q_lora_rank = 1536,
                            .kv_lora_rank = 512,
                            .nope_dim = 128,
                            .rope_dim = 64,
                            .v_dim = 128,
                            .yarn_factor = 40,
                            .yarn_original_positions = 4096,
                            .dense_layers = 3,
                            .experts = 256,
                            .experts_per_token = 8,
                            .expert_groups = 8,
                            .groups_per_token = 4,
                            .shared_experts = 1,
                            .moe_intermediate = 2048,
                            .mtp_layers = 1};
constexpr Sizes kKimiLinear48b{.layers = 27,
                               .hidden = 2304,
                               .intermediate = 9216,
                               .vocab = 163840,
                               .max_positions = 1048576,
                               .heads = 32,
                               .kv_lora_rank = 512,
                               .nope_dim = 128,
                               .rope_dim = 64,
                               .v_dim = 128,
                               .linear_heads = 32,
                               .linear_head_dim = 128,
                               .conv_width = 4,
                               .full_attention_period = 4,
                               .dense_layers = 1,
                               .experts = 256,
                               .experts_per_token = 8,
                               .expert_groups = 1,
                               .groups_per_token = 1,
                               .shared_experts = 1,
                               .moe_intermediate = 1024};

Sizes kimi_k2_published() {
  Sizes sizes = mla_moe(kDeepseekV3, 64, 61);
  sizes.vocab = 163840;
  sizes.max_positions = 262144;
  sizes.yarn_factor = 64;
  sizes.dense_layers = 1;
  sizes.experts = 384;
  sizes.expert_groups = sizes.groups_per_token = 1;
  sizes.mtp_layers = 0;
  return sizes;
}

Sizes kimi_k3_published() {
  Sizes sizes = kKimiLinear48b;
  sizes.layers = 93;
  sizes.hidden = 7168;
  sizes.intermediate = 33792;
  sizes.heads = sizes.linear_heads = 96;
  sizes.q_lora_rank = 1536;
  sizes.experts = 896;
  sizes.experts_per_token = 16;
  sizes.shared_experts = 2;
  sizes.moe_intermediate = 3072;
  sizes.routed_hidden = 3584;
  sizes.attn_res_block = 12;
  return sizes;
}

Sizes kimi_k2_tiny() {
  Sizes sizes = kTinyDeepseek;
  sizes.expert_groups = sizes.groups_per_token = 1;
  return sizes;
}

Sizes kimi_k3_tiny() {
  Sizes sizes = kTinyKimiLinear;
  sizes.q_lora_rank = 128;
  sizes.shared_experts = 2;
  sizes.routed_hidden = 128;
  sizes.attn_res_block = 3;
  return sizes;
}

Sizes with_indexer(Sizes sizes, int heads, int head_dim, int topk) {
  sizes.index_heads = heads;
  sizes.index_head_dim = head_dim;
  sizes.index_topk = topk;
  return sizes;
}

Sizes with_vision(Sizes sizes, int layers, int hidden, int heads, int qkv, int intermediate) {
  sizes.vision_layers = layers;
  sizes.vision_hidden = hidden;
  sizes.vision_heads = heads;
  sizes.vision_qkv = qkv;
  sizes.vision_intermediate = intermediate;
  return sizes;
}
Sizes with_tiny_vision(const Sizes& sizes) { return with_vision(sizes, 1, 32, 2, 32, 48); }

Result<void> within(const Field& field, int value) {
  if (value >= field.least && value <= field.most) return {};
  return fail(Code::kInvalidArgument, "--{} is {}; {} to {} are possible", field.flag, value, field.least, field.most);
}

Result<void> check_experts(const Sizes& s) {
  if (s.dense_layers > s.layers) {
    return fail(Code::kInvalidArgument, "--dense-layers {} is more than --layers {}", s.dense_layers, s.layers);
  }
  if (s.experts % s.expert_groups != 0 || s.groups_per_token > s.expert_groups) {
    return fail(Code::kInvalidArgument,
                "--experts {} must be a multiple of --expert-groups {}, and --groups-per-token {} at most that many",
                s.experts, s.expert_groups, s.groups_per_token);
  }
  if (s.expert_groups > 1 && s.experts / s.expert_groups < 2) {
    return fail(Code::kInvalidArgument,
                "a group is scored by its two best experts: --experts {} in {} groups is too few", s.experts,
                s.expert_groups);
  }
  const int eligible = s.experts / s.expert_groups * s.groups_per_token;
  if (s.experts_per_token > eligible) {
    return fail(Code::kInvalidArgument, "--experts-per-token {} is more than the {} experts a token can choose from",
                s.experts_per_token, eligible);
  }
  return {};
}

}  // namespace

std::string_view checkpoint_arch_name(CheckpointArch arch) { return kNames[static_cast<size_t>(arch)]; }

std::optional<CheckpointArch> parse_checkpoint_arch(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<CheckpointArch>(i);
  }
  return std::nullopt;
}

std::string checkpoint_arch_list() {
  std::string list;
  for (const auto name : kNames) list += fmt::format("{}{}", list.empty() ? "" : ", ", name);
  return list;
}

std::span<const CheckpointSizeField> checkpoint_size_fields() { return kFields; }

bool has_size(CheckpointArch arch, const CheckpointSizeField& field) {
  if (field.member == &Sizes::mtp_layers) {
    return arch == CheckpointArch::kDeepseekV3 || arch == CheckpointArch::kDeepseekV32;
  }
  if (field.member == &Sizes::q_lora_rank) return !is_llama(arch);
  return published_sizes(arch).*field.member > 0;
}

CheckpointSizes tiny_sizes(CheckpointArch arch) {
  switch (arch) {
    case CheckpointArch::kLlama:
      return kTinyLlama;
    case CheckpointArch::kDeepseekV3:
      return kTinyDeepseek;
    case CheckpointArch::kDeepseekV32:
      return with_indexer(kTinyDeepseek, 4, 32, 24);
    case CheckpointArch::kKimiK2:
      return kimi_k2_tiny();
    case CheckpointArch::kKimiK25:
      return with_tiny_vision(kimi_k2_tiny());
    case CheckpointArch::kKimiLinear:
      return kTinyKimiLinear;
    case CheckpointArch::kKimiK3:
      return with_tiny_vision(kimi_k3_tiny());
    case CheckpointArch::kKimiK31:
      return with_indexer(with_tiny_vision(kimi_k3_tiny()), 4, 32, 24);
  }
  return {};
}

CheckpointSizes published_sizes(CheckpointArch arch) {
  switch (arch) {
    case CheckpointArch::kLlama:
      return kLlama8b;
    case CheckpointArch::kDeepseekV3:
      return kDeepseekV3;
    case CheckpointArch::kDeepseekV32:
      return with_indexer(kDeepseekV3, 64, 128, 2048);
    case CheckpointArch::kKimiK2:
      return kimi_k2_published();
    case CheckpointArch::kKimiK25:
      return with_vision(kimi_k2_published(), 27, 1152, 16, 1152, 4304);
    case CheckpointArch::kKimiLinear:
      return kKimiLinear48b;
    case CheckpointArch::kKimiK3:
      return with_vision(kimi_k3_published(), 27, 1024, 12, 1536, 4096);
    case CheckpointArch::kKimiK31:
      return with_indexer(published_sizes(CheckpointArch::kKimiK3), 64, 128, 2048);
  }
  return {};
}

Result<void> check_sizes(CheckpointArch arch, const CheckpointSizes& sizes) {
  for (const Field& field : kFields) {
    const int value = sizes.*field.member;
    if (has_size(arch, field)) {
      BATON_TRY(within(field, value));
    } else if (value != 0) {
      return fail(Code::kInvalidArgument, "{} has no --{}", checkpoint_arch_name(arch), field.flag);
    }
  }
  if (is_llama(arch)) {
    if (sizes.heads % sizes.kv_heads == 0 && sizes.head_dim % 2 == 0) return {};
    return fail(Code::kInvalidArgument, "--heads {} must be a multiple of --kv-heads {}, and --head-dim {} even",
                sizes.heads, sizes.kv_heads, sizes.head_dim);
  }
  if (sizes.rope_dim % 2 != 0)
    return fail(Code::kInvalidArgument, "--qk-rope-head-dim {} must be even", sizes.rope_dim);
  if (has_indexer(arch) && sizes.q_lora_rank == 0) {
    return fail(Code::kInvalidArgument, "the indexer reads the low-rank queries: --q-lora-rank can't be 0");
  }
  if (has_indexer(arch) && sizes.index_head_dim < sizes.rope_dim) {
    return fail(Code::kInvalidArgument, "--index-head-dim {} is less than --qk-rope-head-dim {}", sizes.index_head_dim,
                sizes.rope_dim);
  }
  return check_experts(sizes);
}

bool is_llama(CheckpointArch arch) { return arch == CheckpointArch::kLlama; }
bool is_k3_kind(CheckpointArch arch) { return arch == CheckpointArch::kKimiK3 || arch == CheckpointArch::kKimiK31; }
bool is_kimi_linear_kind(CheckpointArch arch) { return arch == CheckpointArch::kKimiLinear || is_k3_kind(arch); }
bool has_indexer(CheckpointArch arch) {
  return arch == CheckpointArch::kDeepseekV32 || arch == CheckpointArch::kKimiK31;
}
bool has_vision(CheckpointArch arch) { return arch == CheckpointArch::kKimiK25 || is_k3_kind(arch); }
bool is_full_attention(const CheckpointSizes& sizes, int layer) {
  return (layer + 1) % sizes.full_attention_period == 0 || layer + 1 == sizes.layers;
}

}  // namespace baton::weights
