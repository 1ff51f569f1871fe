// The shape of a decoder of multi-head latent attention: DeepSeek V3, R1 and V3.2, Kimi K2 to K2.6, Kimi Linear, Kimi
// K3 and K3.1. Read from config.json or GGUF metadata; what differs between the families is data here, not code.
//
// K3.1's own configuration is not public. It is read as K3 with an indexer on the full-attention layers, under the keys
// that DeepSeek V3.2 and GLM 5 use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/elementwise.h"
#include "models/layers/rope_table.h"
#include "tensor/dtype.h"
#include "weights/checkpoint.h"

namespace baton::models {

struct MlaConfig {
  int heads = 0;
  int q_lora_rank = 0;  // 0: queries straight from the hidden state
  int kv_lora_rank = 0;
  int nope_dim = 0, rope_dim = 0, value_dim = 0;  // of a head
  bool rotary = true;                             // false (K3): the rope_dim part is there and never rotated
  kernels::RopePairing pairing = kernels::RopePairing::kInterleaved;
  bool output_gate = false;  // heads' outputs times sigmoid(g_proj x) before o_proj
  float scale = 0;           // of a score: (nope + rope)^-0.5, with yarn times its mscale squared
  // Of q_a_layernorm and kv_a_layernorm: the modeling code of DeepSeek and Kimi leaves it at its norm's own default.
  float lora_norm_epsilon = 1e-6f;

  int query_dim() const { return nope_dim + rope_dim; }
};

struct KdaConfig {
  int heads = 0;
  int head_dim = 0;  // of keys and of values
  int conv_width = 0;
  bool full_rank_gate = false;            // g_proj; else g_b_proj after g_a_proj
  float unit_epsilon = 1e-6f;             // of the unit norms of q and k
  std::optional<float> gate_lower_bound;  // the decay law of K3; absent: Kimi Linear's softplus
};

enum class IndexKeyNorm : uint8_t { kNone, kRms, kLayer };

struct IndexerConfig {
  int heads = 0, dim = 0, top_k = 0;
  int rope_dim = 0;  // the first of a head's entries; 0: no rotary positions
  kernels::RopePairing pairing = kernels::RopePairing::kHalfSplit;
  IndexKeyNorm key_norm = IndexKeyNorm::kLayer;
  int pool = 1;  // tokens that have one key together; top_k is a multiple of it

  // Of a token in the cache: its key and, with pools, its gate.
  int stored_dim() const { return pool > 1 ? 2 * dim : dim; }
};

struct MoeConfig {
  int experts = 0, experts_per_token = 0;
  int shared_experts = 0;
  int64_t intermediate = 0;  // of one expert
  int64_t latent = 0;        // width that routed experts work in; 0: the hidden size
  bool latent_norm = false;
  bool softmax = false;  // scores; else sigmoid
  bool correction_bias = false;
  int groups = 1, groups_per_token = 1;
  bool normalise = true;
  float scaling = 1;
};

enum class IndexerRole : uint8_t { kNone, kOwn, kShared };  // shared: the selection of the layer before with its own

struct DeepseekLayer {
  bool kda = false;
  bool moe = false;
  IndexerRole indexer = IndexerRole::kNone;
};

struct DeepseekConfig {
  std::string family;  // "deepseek_v3", "kimi_k3", ...: which names its tensors have
  int64_t hidden = 0;
  int64_t intermediate = 0;  // of dense layers
  int64_t vocab = 0;
  int max_positions = 0;
  float rms_epsilon = 0;
  bool tied_embeddings = false;
  std::vector<DeepseekLayer> layers;
  int draft_layers = 0;  // multi-token prediction: stored behind the layers, not run
  MlaConfig mla;
  RopeSpec rope;
  std::optional<KdaConfig> kda;
  std::optional<IndexerConfig> indexer;
  std::optional<MoeConfig> moe;
  // SiTU: beta tanh(g / beta) sigmoid(g) * linear_beta tanh(u / linear_beta). Absent: silu(g) * u.
  struct Situ {
    float beta = 0, linear_beta = 0;
  };
  std::optional<Situ> situ;
  int residual_block = 0;  // attention residuals: layers per block; 0: plain residuals
  tensor::DType native_dtype = tensor::DType::kBF16;

  // Every field that changes a number, as text: part of the model's identity.
  std::string canonical_text() const;
};

Result<DeepseekConfig> read_deepseek_config(const weights::Checkpoint& checkpoint);
Result<DeepseekConfig> read_deepseek_config_hf(const weights::Checkpoint& checkpoint);
Result<DeepseekConfig> read_deepseek_config_gguf(const weights::Checkpoint& checkpoint);
// What both formats must satisfy; fills what follows from the rest.
Result<DeepseekConfig> checked_deepseek_config(DeepseekConfig config, const std::string& where);

}  // namespace baton::models
