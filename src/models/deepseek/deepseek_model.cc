#include "models/deepseek/deepseek_model.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/elementwise.h"
#include "kernels/kda.h"

namespace baton::models {

struct DeepseekModel::Scratch {
  int max_rows = 0, max_logit_rows = 0, threads = 0;
  tensor::Buffer residual, normed, mixed, delta, logit_rows;  // [rows, hidden]
  QuantizedInput input;
  MlpScratch mlp;
  std::optional<MlaScratch> mla;
  std::optional<KdaScratch> kda;
  std::optional<MoeScratch> moe;
  std::optional<IndexSelection> selection;
  std::optional<ResidualBank> bank;
};

// One forward pass.
struct DeepseekModel::Step {
  const ForwardBatch& batch;
  ComputePool& pool;
  Scratch& scratch;
  int64_t rows = 0;
  float* residual = nullptr;  // the running sum; with attention residuals, since the last block border
  bool in_bank = false;       // the running sum has just been moved into the bank
};

CacheNeeds DeepseekModel::cache_needs() const {
  CacheNeeds needs;
  for (const DeepseekLayer& layer : config_.layers) {
    if (layer.kda) {
      ++needs.state_layers;
      continue;
    }
    needs.paged.push_back({.kind = kernels::PagedKind::kLatent,
                           .dim = config_.mla.kv_lora_rank,
                           .rope_dim = config_.mla.rope_dim});
    if (layer.indexer == IndexerRole::kOwn) {
      needs.paged.push_back({.kind = kernels::PagedKind::kIndexKeys, .dim = config_.indexer->dim});
    }
  }
  if (config_.kda) {
    needs.state_heads = config_.kda->heads;
    needs.state_head_bytes =
        kernels::kda_state_head_bytes(config_.kda->head_dim, config_.kda->head_dim, config_.kda->conv_width);
  }
  return needs;
}
