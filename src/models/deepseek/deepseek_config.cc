#include "models/deepseek/deepseek_config.h"

#include <cmath>

namespace baton::models {
namespace {

std::string rope_text(const RopeSpec& rope) {
  std::string text = fmt::format("rope dim={} theta={}", rope.rope_dim, rope.theta);
  if (rope.yarn) {
    const YarnRopeScaling& y = *rope.yarn;
    text += fmt::format(" yarn={},{},{},{},{},{}", y.factor, y.original_max_positions, y.beta_fast, y.beta_slow,
                        y.mscale, y.mscale_all_dim);
  }
  return text;
}

std::string mla_text(const MlaConfig& mla) {
  return fmt::format(
      "mla heads={} q_lora={} kv_lora={} nope={} rope={} value={} rotary={} pairing={} gate={} scale={} eps={}",
      mla.heads, mla.q_lora_rank, mla.kv_lora_rank, mla.nope_dim, mla.rope_dim, mla.value_dim, mla.rotary,
      static_cast<int>(mla.pairing), mla.output_gate, mla.scale, mla.lora_norm_epsilon);
}

std::string moe_text(const MoeConfig& moe) {
  return fmt::format(
      "moe experts={} top={} shared={} intermediate={} latent={} latent_norm={} softmax={} bias={} groups={} "
      "group_top={} "
      "normalise={} scaling={}",
      moe.experts, moe.experts_per_token, moe.shared_experts, moe.intermediate, moe.latent, moe.latent_norm,
      moe.softmax, moe.correction_bias, moe.groups, moe.groups_per_token, moe.normalise, moe.scaling);
}

Result<void> check_moe(const MoeConfig& moe, const std::string& where) {
  if (moe.experts_per_token > moe.experts) {
    return fail(Code::kInvalidArgument, "{}: {} experts a token of {} in all", where, moe.experts_per_token,
                moe.experts);
  }
  if (moe.experts % moe.groups != 0 || moe.groups_per_token > moe.groups) {
    return fail(Code::kInvalidArgument, "{}: {} experts in {} groups of which {} are kept: groups must divide experts",
                where, moe.experts, moe.groups, moe.groups_per_token);
  }
  if (moe.experts_per_token > moe.experts / moe.groups * moe.groups_per_token) {
    return fail(Code::kInvalidArgument, "{}: {} experts a token, but {} groups hold only {}", where,
                moe.experts_per_token, moe.groups_per_token, moe.experts / moe.groups * moe.groups_per_token);
  }
  return {};
}

Result<void> check_mla(const MlaConfig& mla, const std::string& where) {
  if (mla.rotary && mla.rope_dim % 2 != 0) {
    return fail(Code::kInvalidArgument, "{}: qk_rope_head_dim {} must be even", where, mla.rope_dim);
  }
  return {};
}

Result<void> check_indexer(const IndexerConfig& indexer, const std::string& where) {
  if (indexer.rope_dim > indexer.dim || indexer.rope_dim % 2 != 0) {
    return fail(Code::kInvalidArgument, "{}: the indexer's {} rotary dimensions of a head of {} must be even and fit",
                where, indexer.rope_dim, indexer.dim);
  }
  if (indexer.pool > 16 || (indexer.pool & (indexer.pool - 1)) != 0 || indexer.top_k % indexer.pool != 0) {
    return fail(Code::kUnimplemented, "{}: index_kpool {} must be 1, 2, 4, 8 or 16, and divide index_topk {}", where,
                indexer.pool, indexer.top_k);
  }
  return {};
}

}  // namespace

std::string DeepseekConfig::canonical_text() const {
  std::string text =
      fmt::format("deepseek hidden={} intermediate={} vocab={} max_positions={} rms_epsilon={} tied={}\n", hidden,
                  intermediate, vocab, max_positions, rms_epsilon, tied_embeddings);
  text += mla_text(mla) + "\n" + rope_text(rope) + "\n";
  if (kda) {
    text += fmt::format("kda heads={} dim={} conv={} full_rank_gate={} unit_eps={} lower_bound={}\n", kda->heads,
                        kda->head_dim, kda->conv_width, kda->full_rank_gate, kda->unit_epsilon,
                        kda->gate_lower_bound.value_or(0));
  }
  if (indexer) {
    text += fmt::format("indexer heads={} dim={} top_k={} rope={} pairing={} norm={} pool={}\n", indexer->heads,
                        indexer->dim, indexer->top_k, indexer->rope_dim, static_cast<int>(indexer->pairing),
                        static_cast<int>(indexer->key_norm), indexer->pool);
  }
  if (moe) text += moe_text(*moe) + "\n";
  if (situ) text += fmt::format("situ beta={} linear_beta={}\n", situ->beta, situ->linear_beta);
  text += fmt::format("residual_block={} layers=", residual_block);
  for (const DeepseekLayer& layer : layers) {
    text += fmt::format("{}{}{} ", layer.kda ? 'k' : 'm', layer.moe ? 'e' : 'd', static_cast<int>(layer.indexer));
  }
  return text;
}

Result<DeepseekConfig> checked_deepseek_config(DeepseekConfig config, const std::string& where) {
  BATON_TRY(check_mla(config.mla, where));
  if (config.moe) BATON_TRY(check_moe(*config.moe, where));
  if (config.indexer) BATON_TRY(check_indexer(*config.indexer, where));
  MlaConfig& mla = config.mla;
  config.rope.rope_dim = mla.rotary ? mla.rope_dim : 0;
  if (config.indexer && config.mla.q_lora_rank == 0) {
    return fail(Code::kUnimplemented, "{}: an indexer without q_lora_rank: its queries come from the query's low rank",
                where);
  }
  if (config.indexer && config.indexer->rope_dim != 0 && config.indexer->rope_dim != config.rope.rope_dim) {
    return fail(Code::kUnimplemented, "{}: the indexer rotates {} dimensions, the attention {}: they share one table",
                where, config.indexer->rope_dim, config.rope.rope_dim);
  }
  double scale = 1 / std::sqrt(static_cast<double>(mla.query_dim()));
  if (config.rope.yarn) {
    const double mscale = yarn_mscale(config.rope.yarn->factor, config.rope.yarn->mscale_all_dim);
    if (config.rope.yarn->mscale_all_dim > 0) scale *= mscale * mscale;
  }
  mla.scale = static_cast<float>(scale);
  return config;
}

Result<DeepseekConfig> read_deepseek_config(const weights::Checkpoint& checkpoint) {
  return checkpoint.format() == weights::Checkpoint::Format::kGguf ? read_deepseek_config_gguf(checkpoint)
                                                                   : read_deepseek_config_hf(checkpoint);
}

}  // namespace baton::models
