#include "models/llama/llama_config.h"

#include <fmt/ranges.h>

namespace baton::models {

std::string LlamaConfig::canonical_text() const {
  std::string text = fmt::format(
      "llama hidden={} intermediate={} vocab={} layers={} max_positions={} rms_epsilon={} heads={} kv_heads={} "
      "head_dim={} rope_dim={} pairing={} theta={} tied={} qkv_bias={} output_bias={} mlp_bias={}",
      hidden, intermediate, vocab, layers, max_positions, rms_epsilon, attention.heads, attention.kv_heads,
      attention.head_dim, attention.rope_dim, static_cast<int>(attention.pairing), rope.theta, tied_embeddings,
      qkv_bias, output_bias, mlp_bias);
  if (rope.linear) text += fmt::format(" linear={}", rope.linear->factor);
  if (rope.llama3) {
    text += fmt::format(" llama3={},{},{},{}", rope.llama3->factor, rope.llama3->low_frequency_factor,
                        rope.llama3->high_frequency_factor, rope.llama3->original_max_positions);
  }
  if (!rope.frequency_factors.empty()) text += fmt::format(" factors={}", fmt::join(rope.frequency_factors, ","));
  return text;
}

Result<LlamaConfig> read_llama_config(const weights::Checkpoint& checkpoint) {
  return checkpoint.format() == weights::Checkpoint::Format::kGguf ? read_llama_config_gguf(checkpoint)
                                                                   : read_llama_config_hf(checkpoint);
}

Result<LlamaConfig> checked_llama_config(LlamaConfig config, const std::string& where) {
  const GqaShape& shape = config.attention;
  if (shape.heads % shape.kv_heads != 0) {
    return fail(Code::kInvalidArgument, "{}: {} attention heads are not a multiple of {} key-value heads", where,
                shape.heads, shape.kv_heads);
  }
  if (shape.rope_dim % 2 != 0 || shape.rope_dim > shape.head_dim) {
    return fail(Code::kInvalidArgument, "{}: {} rotary dimensions of a head of {} must be even and at most the head",
                where, shape.rope_dim, shape.head_dim);
  }
  if (config.rope.llama3 && config.rope.llama3->high_frequency_factor <= config.rope.llama3->low_frequency_factor) {
    return fail(Code::kInvalidArgument, "{}: rope scaling's high_freq_factor must be above low_freq_factor", where);
  }
  config.rope.rope_dim = shape.rope_dim;
  return config;
}

}  // namespace baton::models
