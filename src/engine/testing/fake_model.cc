#include "engine/testing/fake_model.h"

#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <thread>

#include "base/check.h"
#include "base/strong_id.h"

namespace baton::engine::testing {
namespace {

// The finaliser of SplitMix64.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}
uint64_t mix(uint64_t a, uint64_t b) { return mix(a ^ mix(b)); }

constexpr int64_t kStateBytes = 40;

class FakeModel final : public models::Model {
 public:
  explicit FakeModel(FakeModelOptions options) : options_(std::move(options)) {}

  models::CacheNeeds cache_needs() const override {
    const kernels::PagedEntry layer = {.heads = options_.kv_heads, .dim = options_.head_dim};
    return {.paged = std::vector(static_cast<size_t>(options_.layers), layer),
            .state_layers = options_.state_layers,
            .state_heads = options_.state_heads,
            .state_head_bytes = options_.state_layers > 0 ? kStateBytes : 0};
  }
  int vocab_size() const override { return options_.vocab_size; }
  int max_positions() const override { return options_.max_positions; }
  tensor::DType native_cache_dtype() const override { return tensor::DType::kBF16; }
  std::string fingerprint() const override { return "fake"; }
  int64_t weight_bytes() const override { return 0; }
  Result<void> prepare(int max_rows, int max_logit_rows, int) override {
    max_rows_ = max_rows;
    max_logit_rows_ = max_logit_rows;
    row_states_.assign(static_cast<size_t>(max_rows), 0);
    return {};
  }
  void forward(const models::ForwardBatch& batch, float* logits, ComputePool& pool) override;

 private:
  void advance(const models::ForwardBatch& batch, const kernels::SequenceSlice& slice);
  void write(const models::ForwardBatch& batch, const kernels::SequenceSlice& slice) const;
  uint64_t read(const models::ForwardBatch& batch, const kernels::SequenceSlice& slice, int64_t position) const;
  void fill_logits(uint64_t state, TokenId last, float* row) const;

  const FakeModelOptions options_;
  int max_rows_ = 0, max_logit_rows_ = 0;
  int64_t step_ = 0;
  std::vector<uint64_t> row_states_;  // [rows] of all heads together, after the row's token
};

void FakeModel::forward(const models::ForwardBatch& batch, float* logits, ComputePool& pool) {
  if (options_.steps) options_.steps->fetch_add(1);
  const int64_t step = step_++;
  if (step == options_.throw_at_step) throw std::runtime_error("the fake model was told to die");
  while (options_.hold && options_.hold->load() && step >= options_.hold_from_step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  BATON_CHECK(batch.tokens.size() <= static_cast<size_t>(max_rows_));
  BATON_CHECK(batch.logit_rows.size() <= static_cast<size_t>(max_logit_rows_));
  for (const auto& slice : batch.slices) {
    for (int row = 0; row < slice.row_count; ++row) {
      BATON_CHECK(batch.positions[slice.row_begin + row] == slice.context_len + row);
    }
    write(batch, slice);
    if (options_.state_layers > 0) advance(batch, slice);
  }
  pool.parallel_for(static_cast<int64_t>(batch.logit_rows.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int row = batch.logit_rows[i];
      const kernels::SequenceSlice* slice = nullptr;
      for (const auto& candidate : batch.slices) {
        if (row >= candidate.row_begin && row < candidate.row_begin + candidate.row_count) slice = &candidate;
      }
      BATON_CHECK(slice != nullptr);
      const uint64_t state = read(batch, *slice, batch.positions[row]) ^ row_states_[row];
      fill_logits(state, batch.tokens[row], logits + i * options_.vocab_size);
    }
  });
}

// A head's state fills its slot: every word of it is a link of the chain, so that a torn copy shows, too.
void FakeModel::advance(const models::ForwardBatch& batch, const kernels::SequenceSlice& slice) {
  BATON_CHECK(slice.state_slot >= 0);
  for (int row = 0; row < slice.row_count; ++row) row_states_[slice.row_begin + row] = 0;
  for (int layer = 0; layer < options_.state_layers; ++layer) {
    for (int head = 0; head < options_.state_heads; ++head) {
      std::array<uint64_t, kStateBytes / 8> words{};
      std::byte* at = batch.cache.state(layer).at(slice.state_slot, head);
      if (slice.context_len > 0) std::memcpy(words.data(), at, kStateBytes);
      for (int row = 0; row < slice.row_count; ++row) {
        const auto token = static_cast<uint64_t>(batch.tokens[slice.row_begin + row]);
        for (size_t word = 0; word < words.size(); ++word) {
          words[word] = mix(words[word] ^ words[(word + 1) % words.size()], token + word * 131 + head * 17 + layer);
        }
        row_states_[slice.row_begin + row] = mix(row_states_[slice.row_begin + row], words[0]);
      }
      std::memcpy(at, words.data(), kStateBytes);
    }
  }
}

void FakeModel::write(const models::ForwardBatch& batch, const kernels::SequenceSlice& slice) const {
  const auto cache = batch.cache.keys_values(0);
  const int64_t token_bytes = tensor::dtype_bytes(cache.dtype, cache.head_dim);
  BATON_CHECK(token_bytes >= 8);
  for (int row = 0; row < slice.row_count; ++row) {
    const int64_t position = slice.context_len + row;
    const auto token = static_cast<uint64_t>(batch.tokens[slice.row_begin + row]);
    for (int layer = 0; layer < options_.layers; ++layer) {
      for (int kv = 0; kv < 2; ++kv) {
        for (int head = 0; head < cache.kv_heads; ++head) {
          const uint64_t place = static_cast<uint64_t>((layer * 2 + kv) * cache.kv_heads + head);
          const uint64_t value = mix(mix(token, static_cast<uint64_t>(position)), place);
          auto* at = cache.at(slice.block_table[position / cache.block_size], layer, kv, head);
          std::memcpy(at + (position % cache.block_size) * token_bytes, &value, sizeof(value));
        }
      }
    }
  }
}

uint64_t FakeModel::read(const models::ForwardBatch& batch, const kernels::SequenceSlice& slice,
                         int64_t position) const {
  const auto cache = batch.cache.keys_values(0);
  const int64_t token_bytes = tensor::dtype_bytes(cache.dtype, cache.head_dim);
  uint64_t state = 0;
  for (int64_t p = 0; p <= position; ++p) {
    for (int layer = 0; layer < options_.layers; ++layer) {
      for (int kv = 0; kv < 2; ++kv) {
        for (int head = 0; head < cache.kv_heads; ++head) {
          const auto* at = cache.at(slice.block_table[p / cache.block_size], layer, kv, head);
          uint64_t value;
          std::memcpy(&value, at + (p % cache.block_size) * token_bytes, sizeof(value));
          state = mix(state) ^ value;
        }
      }
    }
  }
  return mix(state);
}

void FakeModel::fill_logits(uint64_t state, TokenId last, float* row) const {
  for (int token = 0; token < options_.vocab_size; ++token) {
    const auto word = static_cast<uint32_t>(mix(state, static_cast<uint64_t>(token)) >> 40);
    row[token] = (static_cast<float>(word) * 0x1p-23f - 1.0f) * options_.spread;
  }
  if (last == options_.nan_at_token) row[0] = std::numeric_limits<float>::quiet_NaN();
}

}  // namespace

std::unique_ptr<models::Model> make_fake_model(FakeModelOptions options) {
  return std::make_unique<FakeModel>(std::move(options));
}

}  // namespace baton::engine::testing
