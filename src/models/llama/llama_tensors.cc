#include "models/llama/llama_tensors.h"

#include <array>
#include <string_view>

namespace baton::models {
namespace {

using Format = weights::Checkpoint::Format;

enum class Dim : uint8_t { kNone, kHidden, kIntermediate, kVocab, kQ, kKv };

struct Row {
  LlamaTensor tensor;
  std::string_view gguf;
  std::string_view hf;
  bool per_layer;
  Dim out;
  Dim in;  // kNone: a vector
};

constexpr std::array<Row, 12> kRows = {{
    {LlamaTensor::kEmbedding, "token_embd", "model.embed_tokens", false, Dim::kVocab, Dim::kHidden},
    {LlamaTensor::kFinalNorm, "output_norm", "model.norm", false, Dim::kHidden, Dim::kNone},
    {LlamaTensor::kLmHead, "output", "lm_head", false, Dim::kVocab, Dim::kHidden},
    {LlamaTensor::kAttentionNorm, "attn_norm", "input_layernorm", true, Dim::kHidden, Dim::kNone},
    {LlamaTensor::kQ, "attn_q", "self_attn.q_proj", true, Dim::kQ, Dim::kHidden},
    {LlamaTensor::kK, "attn_k", "self_attn.k_proj", true, Dim::kKv, Dim::kHidden},
    {LlamaTensor::kV, "attn_v", "self_attn.v_proj", true, Dim::kKv, Dim::kHidden},
    {LlamaTensor::kO, "attn_output", "self_attn.o_proj", true, Dim::kHidden, Dim::kQ},
    {LlamaTensor::kMlpNorm, "ffn_norm", "post_attention_layernorm", true, Dim::kHidden, Dim::kNone},
    {LlamaTensor::kGate, "ffn_gate", "mlp.gate_proj", true, Dim::kIntermediate, Dim::kHidden},
    {LlamaTensor::kUp, "ffn_up", "mlp.up_proj", true, Dim::kIntermediate, Dim::kHidden},
    {LlamaTensor::kDown, "ffn_down", "mlp.down_proj", true, Dim::kHidden, Dim::kIntermediate},
}};

const Row& row_of(LlamaTensor tensor) { return kRows[static_cast<size_t>(tensor)]; }

int64_t size_of(Dim dim, const LlamaConfig& config) {
  switch (dim) {
    case Dim::kHidden:
      return config.hidden;
    case Dim::kIntermediate:
      return config.intermediate;
    case Dim::kVocab:
      return config.vocab;
    case Dim::kQ:
      return config.attention.q_features();
    case Dim::kKv:
      return config.attention.kv_features();
    case Dim::kNone:
      break;
  }
  return 0;
}

std::string base_name(LlamaTensor tensor, int layer, Format format) {
  const Row& row = row_of(tensor);
  if (format == Format::kGguf) return row.per_layer ? fmt::format("blk.{}.{}", layer, row.gguf) : std::string(row.gguf);
  return row.per_layer ? fmt::format("model.layers.{}.{}", layer, row.hf) : std::string(row.hf);
}

void require(TensorTable& table, const Row& row, int layer, const LlamaConfig& config, Format format) {
  std::vector<int64_t> shape = {size_of(row.out, config)};
  if (llama_has_bias(row.tensor, config)) table.require(llama_bias_name(row.tensor, layer, format), shape);
  if (row.in != Dim::kNone) shape.push_back(size_of(row.in, config));
  table.require(llama_tensor_name(row.tensor, layer, format), std::move(shape));
}

}  // namespace

std::string llama_tensor_name(LlamaTensor tensor, int layer, Format format) {
  return base_name(tensor, layer, format) + ".weight";
}

std::string llama_bias_name(LlamaTensor tensor, int layer, Format format) {
  return base_name(tensor, layer, format) + ".bias";
}

bool llama_has_bias(LlamaTensor tensor, const LlamaConfig& config) {
  switch (tensor) {
    case LlamaTensor::kQ:
    case LlamaTensor::kK:
    case LlamaTensor::kV:
      return config.qkv_bias;
    case LlamaTensor::kO:
      return config.output_bias;
    case LlamaTensor::kGate:
    case LlamaTensor::kUp:
    case LlamaTensor::kDown:
      return config.mlp_bias;
    default:
      return false;
  }
}

TensorTable llama_tensor_table(const LlamaConfig& config, Format format) {
  TensorTable table;
  for (const Row& row : kRows) {
    if (row.tensor == LlamaTensor::kLmHead && config.tied_embeddings) continue;
    const int count = row.per_layer ? config.layers : 1;
    for (int layer = 0; layer < count; ++layer) require(table, row, layer, config, format);
  }
  if (format == Format::kGguf) {
    table.ignore("rope_freqs.weight");  // read with the configuration
  } else {
    table.ignore("model.layers.*.self_attn.rotary_emb.inv_freq");  // written by old transformers; computed here
    if (config.tied_embeddings) table.ignore("lm_head.weight");    // a copy of the embedding
  }
  return table;
}

}  // namespace baton::models
