// GGUF metadata of "deepseek2" (DeepSeek V3, R1, Kimi K2), "deepseek32", "kimi-linear" and "kimi-k3", under the keys
// that llama.cpp's converter writes. What no key says (gates, norms) is told by the tensors that are there.
#include <algorithm>

#include "models/config_limits.h"
#include "models/config_reader.h"
#include "models/deepseek/deepseek_config.h"

namespace baton::models {
namespace {

constexpr int64_t kExpertsMax = 65536;
constexpr int64_t kGatingSoftmax = 1, kGatingSigmoid = 2;  // llama.cpp's expert_gating_func

class GgufConfig {
 public:
  GgufConfig(const weights::Checkpoint& checkpoint, const std::string& architecture)
      : checkpoint_(checkpoint),
        reader_(checkpoint.config(), checkpoint.path() + ": GGUF metadata", architecture + "."),
        kimi_(architecture.starts_with("kimi")) {
    config_.family = architecture;
  }

  Result<DeepseekConfig> read() {
    read_sizes();
    read_mla();
    read_rope();
    read_kda();
    read_indexer();
    read_moe();
    BATON_TRY(reader_.finish());
    return checked_deepseek_config(std::move(config_), checkpoint_.path());
  }

 private:
  const weights::TensorEntry* tensor(const std::string& name) const {
    const auto it = checkpoint_.tensors().find(name);
    return it == checkpoint_.tensors().end() ? nullptr : &it->second;
  }
  // A tensor of some layer.
  bool any(std::string_view part) const {
    for (size_t i = 0; i < config_.layers.size(); ++i) {
      if (tensor(fmt::format("blk.{}.{}", i, part)) != nullptr) return true;
    }
    return false;
  }
  int integer(std::string_view key, int64_t max) { return static_cast<int>(reader_.positive(key, max)); }
  int64_t count_or_none(std::string_view key, int64_t max) {
    const auto it = checkpoint_.config().find(reader_.full_key(key));
    const bool zero = it != checkpoint_.config().end() && it->is_number_integer() && *it == 0;
    return zero || reader_.absent(key) ? 0 : reader_.positive(key, max);
  }

  void read_sizes() {
    config_.hidden = reader_.positive("embedding_length", kFeaturesMax);
    config_.intermediate = reader_.positive("feed_forward_length", kFeaturesMax);
    config_.draft_layers = static_cast<int>(count_or_none("nextn_predict_layers", 64));
    const int64_t blocks = reader_.positive("block_count", kLayersMax);
    config_.layers.resize(static_cast<size_t>(std::max<int64_t>(1, blocks - config_.draft_layers)));
    config_.max_positions = integer("context_length", kPositionsMax);
    config_.rms_epsilon = static_cast<float>(reader_.positive_real("attention.layer_norm_rms_epsilon"));
    config_.tied_embeddings = tensor("output.weight") == nullptr;
    const weights::TensorEntry* embedding = tensor("token_embd.weight");
    if (embedding == nullptr || embedding->shape.size() != 2) {
      return reader_.refuse(Code::kDataLoss, "tensor token_embd.weight is missing or not a matrix");
    }
    config_.vocab = embedding->shape[0];
    config_.native_dtype = embedding->dtype == tensor::DType::kF32    ? tensor::DType::kF32
                           : embedding->dtype == tensor::DType::kBF16 ? tensor::DType::kBF16
                                                                      : tensor::DType::kF16;
    if (config_.family != "kimi-k3") return;
    config_.situ = {.beta = static_cast<float>(reader_.positive_real("activation.situ_beta")),
                    .linear_beta = static_cast<float>(reader_.positive_real("activation.situ_linear_beta"))};
    config_.residual_block = static_cast<int>(count_or_none("attn_res.block_size", kLayersMax));
  }

  void read_mla() {
    MlaConfig& mla = config_.mla;
    mla.heads = integer("attention.head_count", kHeadsMax);
    mla.q_lora_rank = static_cast<int>(count_or_none("attention.q_lora_rank", kFeaturesMax));
    mla.kv_lora_rank = integer("attention.kv_lora_rank", kFeaturesMax);
    mla.rope_dim = integer("rope.dimension_count", kHeadDimMax);
    mla.value_dim = integer("attention.value_length_mla", kHeadDimMax);
    const int key_dim = integer("attention.key_length_mla", kHeadDimMax);
    mla.nope_dim = key_dim - mla.rope_dim;
    if (mla.nope_dim < 1) {
      reader_.refuse(Code::kInvalidArgument, "{} {} must be above {} {}", reader_.full_key("attention.key_length_mla"),
                     key_dim, reader_.full_key("rope.dimension_count"), mla.rope_dim);
    }
    mla.rotary = !kimi_;
    mla.output_gate = any("attn_gate.weight");
    // llama.cpp norms all with one epsilon.
    mla.lora_norm_epsilon = config_.rms_epsilon;
  }

  void read_rope() {
    config_.rope.theta = reader_.positive_real_or("rope.freq_base", 10000);
    const std::string type = reader_.text_or("rope.scaling.type", "none");
    if (type == "none" || kimi_) return;
    if (type != "yarn") {
      return reader_.refuse(Code::kUnimplemented, "{} is \"{}\"; this family has none and yarn",
                            reader_.full_key("rope.scaling.type"), type);
    }
    // The multiplier is 0.1 mscale_all_dim; files can't say another mscale, so cosines and sines keep their size.
    const double mscale = reader_.absent("rope.scaling.yarn_log_multiplier")
                              ? 0
                              : reader_.positive_real("rope.scaling.yarn_log_multiplier") * 10;
    config_.rope.yarn = YarnRopeScaling{
        .factor = reader_.positive_real("rope.scaling.factor"),
        .original_max_positions = reader_.positive_real("rope.scaling.original_context_length"),
        .beta_fast = reader_.positive_real_or("rope.scaling.yarn_beta_fast", 32),
        .beta_slow = reader_.positive_real_or("rope.scaling.yarn_beta_slow", 1),
        .mscale = mscale,
        .mscale_all_dim = mscale,
    };
  }

  // Layers without key-value heads are recurrent.
  void read_kda() {
    if (!kimi_) return;
    const auto heads = checkpoint_.config().find(reader_.full_key("attention.head_count_kv"));
    const auto block_count = config_.layers.size() + static_cast<size_t>(config_.draft_layers);
    if (heads == checkpoint_.config().end() || !heads->is_array() || heads->size() != block_count) {
      return reader_.refuse(Code::kInvalidArgument, "{} must be a list with one entry a layer",
                            reader_.full_key("attention.head_count_kv"));
    }
    for (size_t i = 0; i < config_.layers.size(); ++i) config_.layers[i].kda = (*heads)[i] == 0;
    if (std::ranges::none_of(config_.layers, &DeepseekLayer::kda)) return;
    config_.kda = KdaConfig{.heads = config_.mla.heads,
                            .head_dim = integer("kda.head_dim", kHeadDimMax),
                            .conv_width = integer("ssm.conv_kernel", 16),
                            .full_rank_gate = any("ssm_g.weight"),
                            .unit_epsilon = config_.rms_epsilon};
    const auto bound = checkpoint_.config().find(reader_.full_key("kda.gate_lower_bound"));
    if (bound == checkpoint_.config().end()) return;
    if (!bound->is_number() || !(*bound < 0.0)) {
      return reader_.refuse(Code::kInvalidArgument, "{} must be below 0", reader_.full_key("kda.gate_lower_bound"));
    }
    config_.kda->gate_lower_bound = bound->get<float>();
  }

  void read_indexer() {
    if (reader_.absent("attention.indexer.top_k")) return;
    config_.indexer = IndexerConfig{.heads = integer("attention.indexer.head_count", kHeadsMax),
                                    .dim = integer("attention.indexer.key_length", kHeadDimMax),
                                    .top_k = integer("attention.indexer.top_k", int64_t{1} << 30),
                                    .rope_dim = config_.mla.rotary ? config_.mla.rope_dim : 0};
    for (DeepseekLayer& layer : config_.layers) layer.indexer = layer.kda ? IndexerRole::kNone : IndexerRole::kOwn;
  }

  void read_moe() {
    const auto experts = count_or_none("expert_count", kExpertsMax);
    if (experts == 0) return;
    MoeConfig moe;
    moe.experts = static_cast<int>(experts);
    moe.experts_per_token = integer("expert_used_count", kExpertsMax);
    moe.shared_experts = static_cast<int>(count_or_none("expert_shared_count", kExpertsMax));
    moe.intermediate = reader_.positive("expert_feed_forward_length", kFeaturesMax);
    moe.latent = count_or_none("expert_latent_length", kFeaturesMax);
    moe.latent_norm = any("ffn_routed_norm.weight");
    const int64_t gating = reader_.positive_or("expert_gating_func", kGatingSigmoid, 64);
    if (gating != kGatingSoftmax && gating != kGatingSigmoid) {
      reader_.refuse(Code::kUnimplemented, "{} is {}; this version has 1 (softmax) and 2 (sigmoid)",
                     reader_.full_key("expert_gating_func"), gating);
    }
    moe.softmax = gating == kGatingSoftmax;
    moe.correction_bias = any("exp_probs_b.bias");
    moe.groups = static_cast<int>(reader_.positive_or("expert_group_count", 1, kExpertsMax));
    moe.groups_per_token = static_cast<int>(reader_.positive_or("expert_group_used_count", 1, kExpertsMax));
    moe.normalise = reader_.flag_or("expert_weights_norm", false);
    moe.scaling = static_cast<float>(reader_.positive_real_or("expert_weights_scale", 1));
    config_.moe = moe;
    const auto dense = count_or_none("leading_dense_block_count", kLayersMax);
    for (int64_t i = dense; i < std::ssize(config_.layers); ++i) config_.layers[i].moe = true;
  }

  const weights::Checkpoint& checkpoint_;
  ConfigReader reader_;
  const bool kimi_;
  DeepseekConfig config_;
};

}  // namespace

Result<DeepseekConfig> read_deepseek_config_gguf(const weights::Checkpoint& checkpoint) {
  const auto architecture = checkpoint.config().find("general.architecture");
  if (architecture == checkpoint.config().end() || !architecture->is_string()) {
    return fail(Code::kDataLoss, "{}: GGUF metadata has no general.architecture", checkpoint.path());
  }
  return GgufConfig(checkpoint, architecture->get<std::string>()).read();
}

}  // namespace baton::models
