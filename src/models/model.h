// A model as the engine's worker sees it: what it caches, and one forward pass over a step's rows.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/compute_pool.h"
#include "base/status.h"
#include "kernels/kv_view.h"
#include "tensor/cpu.h"
#include "tensor/dtype.h"

namespace baton::models {

// What a model keeps of a sequence between steps.
struct CacheNeeds {
  // Per token. The model's own order; dtypes are the engine's to set.
  std::vector<kernels::PagedEntry> paged;
  // Per sequence: [layer][head][head_bytes], fp32. 0 layers: none.
  int state_layers = 0;
  int state_heads = 0;
  int64_t state_head_bytes = 0;
};

// One step's rows, of any number of sequences, prompt chunks and generated tokens mixed.
struct ForwardBatch {
  std::span<const int32_t> tokens;     // [rows]
  std::span<const int32_t> positions;  // [rows]
  std::span<const kernels::SequenceSlice> slices;
  std::span<const int32_t> logit_rows;  // rows whose logits are wanted, ascending
  kernels::CacheView cache;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual CacheNeeds cache_needs() const = 0;
  virtual int vocab_size() const = 0;
  // The longest context the weights were trained for.
  virtual int max_positions() const = 0;
  // Dtype the checkpoint computes in; what --kv-cache-dtype auto means.
  virtual tensor::DType native_cache_dtype() const = 0;
  // Hex SHA-256 over config and weights' names, shapes, formats and sampled bytes: the identity in hand-shakes.
  virtual std::string fingerprint() const = 0;
  // Bytes of weights held.
  virtual int64_t weight_bytes() const = 0;
  // Allocates scratch for steps of up to max_rows rows and max_logit_rows wanted rows. Call once before forward.
  virtual Result<void> prepare(int max_rows, int max_logit_rows, int threads) = 0;
  // Writes the step's keys and values into the cache and logits [logit_rows.size(), vocab_size] fp32.
  virtual void forward(const ForwardBatch& batch, float* logits, ComputePool& pool) = 0;
};

struct LoadOptions {
  tensor::Isa isa = tensor::Isa::kPortable;
  bool allow_onednn = true;
  // 0: from the checkpoint. Refused when larger than the checkpoint supports.
  int max_positions = 0;
  // Called with bytes done and bytes in all, from the loading thread.
  std::function<void(int64_t done, int64_t total)> progress;
};

// Loads a GGUF file or a Hugging Face folder; the architecture picks the family (registry.cc).
Result<std::unique_ptr<Model>> load_model(const std::string& path, const LoadOptions& options, ComputePool& pool);

}  // namespace baton::models
