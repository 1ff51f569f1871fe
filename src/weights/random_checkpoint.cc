#include "weights/random_checkpoint.h"

#include <cmath>

#include "weights/random_values.h"
#include "weights/small_tokenizer.h"

namespace baton::weights {
namespace {

class Maker {
 public:
  explicit Maker(const RandomLlamaOptions& options) : o_(options) {}

  std::vector<RandomTensor> make() {
    // A head tied to it sees normed activations: this deviation gives logits of about 2.5.
    const float head = 2.5f / std::sqrt(static_cast<float>(o_.hidden));
    matrix("model.embed_tokens.weight", "token_embd.weight", o_.vocab, o_.hidden, o_.tied ? head : 1.0f);
    for (int layer = 0; layer < o_.layers; ++layer) make_layer(layer);
    norm("model.norm.weight", "output_norm.weight");
    if (!o_.tied) matrix("lm_head.weight", "output.weight", o_.vocab, o_.hidden, head);
    return std::move(tensors_);
  }

 private:
  void make_layer(int layer) {
    const auto names = [layer](const char* huggingface, const char* gguf) {
      return std::pair(fmt::format("model.layers.{}.{}", layer, huggingface), fmt::format("blk.{}.{}", layer, gguf));
    };
    const int q = o_.heads * o_.head_dim;
    const int kv = o_.kv_heads * o_.head_dim;
    norm(names("input_layernorm.weight", "attn_norm.weight"));
    // Queries and keys a little above unit size, so that scores spread by about 2.
    linear(names("self_attn.q_proj", "attn_q"), q, o_.hidden, 1.5f, o_.attention_bias, o_.heads);
    linear(names("self_attn.k_proj", "attn_k"), kv, o_.hidden, 1.5f, o_.attention_bias, o_.kv_heads);
    linear(names("self_attn.v_proj", "attn_v"), kv, o_.hidden, 1.0f, o_.attention_bias);
    linear(names("self_attn.o_proj", "attn_output"), o_.hidden, q, 1.0f, o_.attention_bias);
    norm(names("post_attention_layernorm.weight", "ffn_norm.weight"));
    linear(names("mlp.gate_proj", "ffn_gate"), o_.intermediate, o_.hidden, 1.0f, false);
    linear(names("mlp.up_proj", "ffn_up"), o_.intermediate, o_.hidden, 1.0f, false);
    linear(names("mlp.down_proj", "ffn_down"), o_.hidden, o_.intermediate, 1.5f, false);
  }

  void linear(const std::pair<std::string, std::string>& names, int out, int in, float gain, bool bias,
              int permuted_heads = 0) {
    matrix(names.first + ".weight", names.second + ".weight", out, in, gain / std::sqrt(static_cast<float>(in)));
    tensors_.back().gguf_permuted_heads = permuted_heads;
    if (!bias) return;
    add(names.first + ".bias", names.second + ".bias", {out}, 0.2f, 0.0f);
    tensors_.back().gguf_permuted_heads = permuted_heads;
  }
  void matrix(std::string huggingface, std::string gguf, int out, int in, float deviation) {
    add(std::move(huggingface), std::move(gguf), {out, in}, deviation, 0.0f);
  }
  void norm(const std::pair<std::string, std::string>& names) { norm(names.first, names.second); }
  void norm(std::string huggingface, std::string gguf) {
    add(std::move(huggingface), std::move(gguf), {o_.hidden}, 0.1f, 1.0f);
  }

  void add(std::string huggingface, std::string gguf, std::vector<int64_t> shape, float deviation, float mean) {
    const uint64_t key = random_tensor_key(huggingface, o_.seed);
    int64_t count = 1;
    for (const int64_t dim : shape) count *= dim;
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = mean + deviation * random_normal(key, i);
    tensors_.push_back({std::move(huggingface), std::move(gguf), std::move(shape), std::move(values)});
  }

  const RandomLlamaOptions& o_;
  std::vector<RandomTensor> tensors_;
};

Result<void> check_options(const RandomLlamaOptions& o) {
  const auto within = [](const char* name, int value, int least, int most) -> Result<void> {
    if (value >= least && value <= most) return {};
    return fail(Code::kInvalidArgument, "{} is {}; {} to {} are possible", name, value, least, most);
  };
  BATON_TRY(within("layers", o.layers, 1, 256));
  BATON_TRY(within("hidden", o.hidden, 1, 16384));
  BATON_TRY(within("heads", o.heads, 1, 256));
  BATON_TRY(within("kv_heads", o.kv_heads, 1, o.heads));
  BATON_TRY(within("head_dim", o.head_dim, 2, 512));
  BATON_TRY(within("intermediate", o.intermediate, 1, 65536));
  BATON_TRY(within("vocab", o.vocab, SmallTokenizer::kVocabMin, 1 << 20));
  BATON_TRY(within("max_positions", o.max_positions, 1, 1 << 24));
  if (o.heads % o.kv_heads != 0 || o.head_dim % 2 != 0) {
    return fail(Code::kInvalidArgument, "heads {} must be a multiple of kv_heads {}, and head_dim {} even", o.heads,
                o.kv_heads, o.head_dim);
  }
  const int64_t per_layer = int64_t{o.hidden} * (2 * o.head_dim * (o.heads + o.kv_heads) + 3 * o.intermediate);
  const int64_t weights = o.layers * per_layer + int64_t{o.vocab} * o.hidden * (o.tied ? 1 : 2);
  if (weights > int64_t{1} << 31) {
    return fail(Code::kInvalidArgument, "{} weights are too many for a small checkpoint (at most 2^31)", weights);
  }
  return {};
}

}  // namespace

Result<std::vector<RandomTensor>> make_random_tensors(const RandomLlamaOptions& options) {
  BATON_TRY(check_options(options));
  return Maker(options).make();
}

}  // namespace baton::weights
