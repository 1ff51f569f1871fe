// Attention residuals (Kimi K3): what a layer reads is a softmax-weighted sum of earlier block sums and of the running
// residual, the prefix. The bank of block sums and the prefix are all that one pipeline stage hands to the next.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/compute_pool.h"
#include "base/status.h"
#include "tensor/buffer.h"
#include "tensor/cpu.h"

namespace baton::models {

// One mix: the norm's weight times the projection, [hidden] (kernels/mixing.h).
struct AttnResWeights {
  std::vector<float> weight;
  // norm: *_res_norm [hidden]; projection: *_res_proj [1, hidden].
  static AttnResWeights make(std::span<const float> norm, std::span<const float> projection);
};

// The block sums of a step's rows, [rows, max_blocks, hidden]. Used by the worker's thread alone.
class AttnResBank {
 public:
  // kInvalidArgument for more blocks than a mix can hold.
  static Result<AttnResBank> allocate(int64_t max_rows, int max_blocks, int64_t hidden);

  // Empties the bank for a step of `rows` rows.
  void begin(int64_t rows);
  int count() const { return count_; }
  // Appends prefix [rows, hidden] as the next block sum of every row.
  void append(const float* prefix, ComputePool& pool);
  // h [rows, hidden] = mix of the bank, oldest first, then of the prefix if it is not null. At a boundary layer, which
  // has just moved the prefix into the bank, it is null: it counts once. Bank and prefix can't both be absent.
  void mix(const AttnResWeights& weights, const float* prefix, float eps, float* h, tensor::Isa isa,
           ComputePool& pool) const;

  // What crosses to the next stage: [rows, 1 + count, hidden], the prefix, then the bank, oldest first.
  int64_t packed_floats() const { return rows_ * (1 + count_) * hidden_; }
  void pack(const float* prefix, float* out, ComputePool& pool) const { pack(prefix, 0, rows_, out, pool); }
  // The same of rows [first, first + rows) alone; out: theirs.
  void pack(const float* prefix, int64_t first, int64_t rows, float* out, ComputePool& pool) const;
  // Takes over rows and count blocks from `packed`, and the prefix into prefix [rows, hidden].
  void unpack(const float* packed, int64_t rows, int count, float* prefix, ComputePool& pool);

 private:
  float* block(int64_t row, int index) { return bank_.as<float>() + (row * max_blocks_ + index) * hidden_; }
  const float* block(int64_t row, int index) const { return bank_.as<float>() + (row * max_blocks_ + index) * hidden_; }

  tensor::Buffer bank_;
  int64_t max_rows_ = 0, rows_ = 0, hidden_ = 0;
  int max_blocks_ = 0, count_ = 0;
};

}  // namespace baton::models
