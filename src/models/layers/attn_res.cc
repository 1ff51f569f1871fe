#include "models/layers/attn_res.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/mixing.h"

namespace baton::models {

AttnResWeights AttnResWeights::make(std::span<const float> norm, std::span<const float> projection) {
  BATON_CHECK(norm.size() == projection.size(), "{} {}", norm.size(), projection.size());
  AttnResWeights weights;
  for (size_t i = 0; i < norm.size(); ++i) weights.weight.push_back(norm[i] * projection[i]);
  return weights;
}

Result<AttnResBank> AttnResBank::allocate(int64_t max_rows, int max_blocks, int64_t hidden) {
  if (max_blocks < 1 || max_blocks >= kernels::kMaxMixSources) {
    return fail(Code::kInvalidArgument, "attention residuals over {} blocks: at least 1 and below {}", max_blocks,
                kernels::kMaxMixSources);
  }
  AttnResBank bank;
  BATON_TRY_ASSIGN(bank.bank_,
                   tensor::Buffer::allocate(static_cast<size_t>(max_rows * max_blocks * hidden) * sizeof(float)));
  bank.max_rows_ = max_rows;
  bank.max_blocks_ = max_blocks;
  bank.hidden_ = hidden;
  return bank;
}

void AttnResBank::begin(int64_t rows) {
  BATON_CHECK(rows >= 0 && rows <= max_rows_, "rows={} of {}", rows, max_rows_);
  rows_ = rows;
  count_ = 0;
}

void AttnResBank::append(const float* prefix, ComputePool& pool) {
  BATON_CHECK(count_ < max_blocks_, "blocks={}", count_);
  pool.parallel_for(rows_, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) std::copy_n(prefix + r * hidden_, hidden_, block(r, count_));
  });
  ++count_;
}

void AttnResBank::mix(const AttnResWeights& weights, const float* prefix, float eps, float* h, tensor::Isa isa,
                      ComputePool& pool) const {
  kernels::mix_sources({.bank = bank_.as<float>(),
                        .bank_row_stride = max_blocks_ * hidden_,
                        .bank_count = count_,
                        .last = prefix,
                        .last_stride = hidden_,
                        .weight = weights.weight.data(),
                        .eps = eps,
                        .y = h,
                        .y_stride = hidden_,
                        .rows = rows_,
                        .features = hidden_,
                        .isa = isa},
                       pool);
}

void AttnResBank::pack(const float* prefix, int64_t first, int64_t rows, float* out, ComputePool& pool) const {
  pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = first + begin; r < first + end; ++r) {
      float* to = out + (r - first) * (1 + count_) * hidden_;
      std::copy_n(prefix + r * hidden_, hidden_, to);
      std::copy_n(block(r, 0), count_ * hidden_, to + hidden_);
    }
  });
}

void AttnResBank::unpack(const float* packed, int64_t rows, int count, float* prefix, ComputePool& pool) {
  BATON_CHECK(count >= 0 && count <= max_blocks_, "blocks={} of {}", count, max_blocks_);
  begin(rows);
  count_ = count;
  pool.parallel_for(rows_, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* from = packed + r * (1 + count_) * hidden_;
      std::copy_n(from, hidden_, prefix + r * hidden_);
      std::copy_n(from + hidden_, count_ * hidden_, block(r, 0));
    }
  });
}

}  // namespace baton::models
