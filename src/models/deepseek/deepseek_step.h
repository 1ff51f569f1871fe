// What one forward pass of a DeepseekModel works with; for its own files alone.
#pragma once

#include "models/deepseek/deepseek_model.h"

namespace baton::models {

struct DeepseekModel::Scratch {
  int max_rows = 0, max_logit_rows = 0, threads = 0;
  tensor::Buffer residual, mixed;         // [rows of the rank, hidden]
  std::shared_ptr<tensor::Buffer> delta;  // [rows, hidden], of the team
  TeamRows normed, logit_rows;            // [rows, hidden]
  QuantizedInput input;
  std::optional<MlpScratch> mlp;
  std::optional<MlaScratch> mla;
  std::optional<KdaScratch> kda;
  std::optional<MoeScratch> moe;
  std::optional<IndexSelection> selection;
  std::optional<AttnResBank> bank;  // of the rank's rows
};

// One forward pass.
struct DeepseekModel::Step {
  const ForwardBatch& batch;
  ComputePool& pool;
  Scratch& scratch;
  TeamStep team;
  parallel::Share mine;       // the rank's rows
  float* residual = nullptr;  // of them: the running sum; with attention residuals, since the last block border
  bool in_bank = false;       // the running sum has just been moved into the bank
};

}  // namespace baton::models
