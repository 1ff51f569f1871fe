// What the tests of this room share: one sequence through a model, in steps of any size, over its own cache.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "models/model.h"

namespace baton::models {

struct RunnerOptions {
  tensor::DType cache_dtype = tensor::DType::kF16;
  int block_size = 16;
  int threads = 1;
  int max_rows = 256;
  int max_tokens = 2048;
};

class ModelRunner {
 public:
  ModelRunner(Model& model, RunnerOptions options)
      : model_(model), options_(options), pool_({.threads = options.threads, .spin_us = 0}) {
    entries_ = model.cache_needs().paged;
    view_.block_size = options.block_size;
    for (kernels::PagedEntry& entry : entries_) {
      entry.dtype = options.cache_dtype;
      offsets_.push_back(view_.block_stride);
      view_.block_stride += kernels::entry_block_bytes(entry, options.block_size);
    }
    view_.entries = entries_;
    view_.entry_offsets = offsets_;
    const int blocks = (options.max_tokens + options.block_size - 1) / options.block_size;
    bytes_.assign(view_.block_stride * blocks, std::byte{0xff});
    view_.blocks = bytes_.data();
    table_.resize(blocks);
    std::iota(table_.rbegin(), table_.rend(), 0);
    prepared_ = model.prepare(options.max_rows, options.max_rows, options.threads);
  }

  const Result<void>& prepared() const { return prepared_; }

  // Appends tokens in steps of at most `chunk`. Logits of all of them, or of the last only. [rows, vocab]
  std::vector<float> feed(const std::vector<int32_t>& tokens, int chunk, bool last_only = false) {
    std::vector<float> logits;
    for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
      const size_t end = std::min(tokens.size(), begin + chunk);
      const bool wanted = !last_only || end == tokens.size();
      const auto step = run_step({tokens.begin() + begin, tokens.begin() + end}, wanted, last_only);
      logits.insert(logits.end(), step.begin(), step.end());
    }
    return logits;
  }

 private:
  std::vector<float> run_step(const std::vector<int32_t>& tokens, bool wanted, bool last_only) {
    const int rows = static_cast<int>(tokens.size());
    std::vector<int32_t> positions(rows), logit_rows(rows);
    std::iota(positions.begin(), positions.end(), length_);
    std::iota(logit_rows.begin(), logit_rows.end(), 0);
    if (last_only) logit_rows = {rows - 1};
    if (!wanted) logit_rows.clear();
    const kernels::SequenceSlice slice = {.block_table = table_.data(), .context_len = length_, .row_count = rows};
    std::vector<float> logits(logit_rows.size() * model_.vocab_size());
    model_.forward(
        {.tokens = tokens, .positions = positions, .slices = {&slice, 1}, .logit_rows = logit_rows, .cache = view_},
        logits.data(), pool_);
    length_ += rows;
    return logits;
  }

  Model& model_;
  RunnerOptions options_;
  ComputePool pool_;
  std::vector<kernels::PagedEntry> entries_;
  std::vector<int64_t> offsets_;
  kernels::CacheView view_;
  std::vector<std::byte> bytes_;
  std::vector<int32_t> table_;
  Result<void> prepared_;
  int32_t length_ = 0;
};

}  // namespace baton::models
