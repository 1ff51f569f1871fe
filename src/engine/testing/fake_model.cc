#include "engine/testing/fake_model.h"

#include <algorithm>
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

parallel::Share stage_share(int layers, const parallel::RankPlace& place) {
  return parallel::share_of(layers, place.sizes.pp, place.stage);
}

// KV heads of a rank's context group: shared by groups that are more than there are heads.
parallel::Share kv_share(int heads, const parallel::RankPlace& place) {
  const int groups = place.context_groups(), group = place.context_group();
  if (heads >= groups) return parallel::share_of(heads, groups, group);
  const int head = group * heads / groups;
  return {head, head + 1};
}

class FakeModel final : public models::Model {
 public:
  FakeModel(FakeModelOptions options, models::RankSetup rank)
      : options_(std::move(options)),
        rank_(std::move(rank)),
        place_(rank_.place),
        layers_(stage_share(options_.layers, place_)),
        heads_(kv_share(options_.kv_heads, place_)),
        state_layers_(stage_share(options_.state_layers, place_)),
        state_heads_(place_.heads(options_.state_heads)) {}

  models::CacheNeeds cache_needs() const override;
  int vocab_size() const override { return options_.vocab_size; }
  int max_positions() const override { return options_.max_positions; }
  tensor::DType native_cache_dtype() const override { return tensor::DType::kBF16; }
  std::string fingerprint() const override { return "fake"; }
  int64_t weight_bytes() const override { return 0; }
  int64_t stage_in_floats(int64_t rows) const override { return place_.first_stage() ? 0 : rows * 2; }
  int64_t stage_out_floats(int64_t rows) const override { return place_.last_stage() ? 0 : rows * 2; }
  Result<void> prepare(int max_rows, int max_logit_rows, int) override {
    max_rows_ = max_rows;
    max_logit_rows_ = max_logit_rows;
    row_states_.assign(static_cast<size_t>(max_rows), 0);
    BATON_TRY_ASSIGN(shared_, group_.share(static_cast<size_t>(max_rows) * place_.sizes.team_size() * 8));
    return {};
  }
  void forward(const models::ForwardBatch& batch, float* logits, ComputePool& pool) override;

 private:
  bool keeps_state() const { return state_layers_.count() > 0 && state_heads_.count() > 0; }
  void begin_step();
  void advance(const models::ForwardBatch& batch, const kernels::SequenceSlice& slice);
  void write(const models::ForwardBatch& batch, const kernels::SequenceSlice& slice) const;
  uint64_t read(const models::ForwardBatch& batch, const kernels::SequenceSlice& slice, int64_t position) const;
  uint64_t read_head(const models::ForwardBatch& batch, const kernels::SequenceSlice& slice, int64_t position,
                     int64_t layer, int64_t head) const;
  bool counts_head(int64_t head) const;
  void pass_on(const models::ForwardBatch& batch, float* logits);
  void fill_logits(uint64_t state, TokenId last, float* row) const;

  const FakeModelOptions options_;
  const models::RankSetup rank_;
  const parallel::RankPlace place_;
  const parallel::Share layers_, heads_, state_layers_, state_heads_;  // this rank's
  parallel::Group group_ = rank_.group;
  int max_rows_ = 0, max_logit_rows_ = 0;
  int64_t step_ = 0;
  std::vector<uint64_t> row_states_;        // [rows] of this rank's state heads together, after the row's token
  std::shared_ptr<tensor::Buffer> shared_;  // [team rank][row]: what each rank's heads come to
};

models::CacheNeeds FakeModel::cache_needs() const {
  models::CacheNeeds needs;
  for (int64_t layer = layers_.begin; layer < layers_.end; ++layer) {
    needs.paged.push_back({.heads = static_cast<int>(heads_.count()), .dim = options_.head_dim});
    needs.parts.push_back({.index = static_cast<int>(layer),
                           .first_head = static_cast<int>(heads_.begin),
                           .total_heads = options_.kv_heads});
  }
  if (!keeps_state()) return needs;
  needs.state_layers = static_cast<int>(state_layers_.count());
  needs.state_heads = static_cast<int>(state_heads_.count());
  needs.state_head_bytes = kStateBytes;
  for (int64_t layer = state_layers_.begin; layer < state_layers_.end; ++layer) {
    needs.state_parts.push_back({.index = static_cast<int>(layer),
                                 .first_head = static_cast<int>(state_heads_.begin),
                                 .total_heads = options_.state_heads});
  }
  return needs;
}

void FakeModel::begin_step() {
  const bool first = place_.stage == 0 && place_.team_rank == 0;
  if (options_.steps && first) options_.steps->fetch_add(1);
  const int64_t step = step_++;
  const bool dies_here = options_.throw_at_rank < 0 || options_.throw_at_rank == place_.replica_rank();
  if (step == options_.throw_at_step && dies_here) throw std::runtime_error("the fake model was told to die");
  while (options_.hold && options_.hold->load() && step >= options_.hold_from_step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (rank_.replicas == nullptr || place_.team_rank != 0) return;
  std::vector<std::vector<std::byte>> numbers(static_cast<size_t>(rank_.replicas->size()));
  for (auto& number : numbers) number.assign(1, static_cast<std::byte>(step & 0xff));
  const auto theirs = rank_.replicas->exchange(numbers);
  if (!theirs) throw std::runtime_error(theirs.error().message());
  if (*theirs != numbers) throw std::runtime_error("replicas are at different steps");
}

void FakeModel::forward(const models::ForwardBatch& batch, float* logits, ComputePool& pool) {
  begin_step();
  BATON_CHECK(batch.tokens.size() <= static_cast<size_t>(max_rows_));
  BATON_CHECK(batch.logit_rows.size() <= static_cast<size_t>(max_logit_rows_));
  for (const auto& slice : batch.slices) {
    for (int row = 0; row < slice.row_count; ++row) {
      BATON_CHECK(batch.positions[slice.row_begin + row] == slice.context_len + row);
    }
    write(batch, slice);
    for (int row = 0; row < slice.row_count; ++row) row_states_[slice.row_begin + row] = 0;
    if (keeps_state()) advance(batch, slice);
  }
  group_.barrier();
  auto* mine = shared_->as<uint64_t>() + int64_t{place_.team_rank} * max_rows_;
  pool.parallel_for(static_cast<int64_t>(batch.logit_rows.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int row = batch.logit_rows[i];
      const kernels::SequenceSlice* slice = nullptr;
      for (const auto& candidate : batch.slices) {
        if (row >= candidate.row_begin && row < candidate.row_begin + candidate.row_count) slice = &candidate;
      }
      BATON_CHECK(slice != nullptr);
      mine[i] = read(batch, *slice, batch.positions[row]) + row_states_[row];
    }
  });
  group_.barrier();
  pass_on(batch, logits);
  group_.barrier();
}

// Adds up what all ranks of the team and the stages before have come to.
void FakeModel::pass_on(const models::ForwardBatch& batch, float* logits) {
  const auto columns = parallel::share_of(options_.vocab_size, place_.sizes.team_size(), place_.team_rank);
  std::vector<float> row(static_cast<size_t>(options_.vocab_size));
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    uint64_t state = 0;
    if (batch.stage_in != nullptr) std::memcpy(&state, batch.stage_in + 2 * i, 8);
    for (int rank = 0; rank < place_.sizes.team_size(); ++rank) {
      state += shared_->as<uint64_t>()[int64_t{rank} * max_rows_ + static_cast<int64_t>(i)];
    }
    if (batch.stage_out != nullptr && place_.team_rank == 0) std::memcpy(batch.stage_out + 2 * i, &state, 8);
    if (!place_.last_stage()) continue;
    fill_logits(state, batch.tokens[batch.logit_rows[i]], row.data());
    std::copy(row.begin() + columns.begin, row.begin() + columns.end,
              logits + static_cast<int64_t>(i) * options_.vocab_size + columns.begin);
  }
}

// A head's state fills its slot: every word of it is a link of the chain, so that a torn copy shows, too.
void FakeModel::advance(const models::ForwardBatch& batch, const kernels::SequenceSlice& slice) {
  BATON_CHECK(slice.state_slot >= 0);
  for (int64_t layer = state_layers_.begin; layer < state_layers_.end; ++layer) {
    for (int64_t head = state_heads_.begin; head < state_heads_.end; ++head) {
      std::array<uint64_t, kStateBytes / 8> words{};
      std::byte* at = batch.cache.state(static_cast<int>(layer - state_layers_.begin))
                          .at(slice.state_slot, head - state_heads_.begin);
      if (slice.context_len > 0) std::memcpy(words.data(), at, kStateBytes);
      const uint64_t place = static_cast<uint64_t>(head * 17 + layer * 1009);
      for (int row = 0; row < slice.row_count; ++row) {
        const auto token = static_cast<uint64_t>(batch.tokens[slice.row_begin + row]);
        for (size_t word = 0; word < words.size(); ++word) {
          words[word] = mix(words[word] ^ words[(word + 1) % words.size()], token + word * 131 + place);
        }
        row_states_[slice.row_begin + row] += mix(words[0], place);
      }
      std::memcpy(at, words.data(), kStateBytes);
    }
  }
}

// Only positions that fall to this rank.
void FakeModel::write(const models::ForwardBatch& batch, const kernels::SequenceSlice& slice) const {
  if (layers_.count() == 0) return;
  const auto cache = batch.cache.keys_values(0);
  const auto& context = batch.cache.context;
  const int64_t token_bytes = tensor::dtype_bytes(cache.dtype, cache.head_dim);
  BATON_CHECK(token_bytes >= 8);
  for (int row = 0; row < slice.row_count; ++row) {
    const int64_t position = slice.context_len + row;
    if (!context.holds(position, cache.block_size)) continue;
    const auto token = static_cast<uint64_t>(batch.tokens[slice.row_begin + row]);
    const auto block = slice.block_table[position / cache.block_size / context.size];
    for (int64_t layer = layers_.begin; layer < layers_.end; ++layer) {
      for (int kv = 0; kv < 2; ++kv) {
        for (int64_t head = heads_.begin; head < heads_.end; ++head) {
          const uint64_t place = static_cast<uint64_t>((layer * 2 + kv) * options_.kv_heads + head);
          const uint64_t value = mix(mix(token, static_cast<uint64_t>(position)), place);
          auto* at = cache.at(block, layer - layers_.begin, kv, head - heads_.begin);
          std::memcpy(at + (position % cache.block_size) * token_bytes, &value, sizeof(value));
        }
      }
    }
  }
}

// Each head once among the ranks of a team: of those that keep it, the context ranks take turns.
bool FakeModel::counts_head(int64_t head) const {
  if (head % place_.sizes.context_size() != place_.context_rank()) return false;
  for (int group = 0; group < place_.context_group(); ++group) {
    auto before = place_;
    before.team_rank = group * place_.sizes.dcp;
    if (kv_share(options_.kv_heads, before).contains(head)) return false;
  }
  return true;
}

uint64_t FakeModel::read(const models::ForwardBatch& batch, const kernels::SequenceSlice& slice,
                         int64_t position) const {
  uint64_t sum = 0;
  for (int64_t layer = layers_.begin; layer < layers_.end; ++layer) {
    for (int64_t head = heads_.begin; head < heads_.end; ++head) {
      if (counts_head(head)) sum += read_head(batch, slice, position, layer, head);
    }
  }
  return sum;
}

// Every position, from whichever rank holds it.
uint64_t FakeModel::read_head(const models::ForwardBatch& batch, const kernels::SequenceSlice& slice, int64_t position,
                              int64_t layer, int64_t head) const {
  const auto cache = batch.cache.keys_values(0);
  const int size = batch.cache.context.size;
  const int64_t token_bytes = tensor::dtype_bytes(cache.dtype, cache.head_dim);
  uint64_t state = static_cast<uint64_t>(layer * 977 + head);
  for (int64_t p = 0; p <= position; ++p) {
    const int64_t place = p / cache.block_size;
    for (int kv = 0; kv < 2; ++kv) {
      const std::byte* at = cache.at(slice.block_table[place / size], layer - layers_.begin, kv, head - heads_.begin);
      if (size > 1) at = batch.cache.context_blocks[static_cast<size_t>(place % size)] + (at - batch.cache.blocks);
      uint64_t value;
      std::memcpy(&value, at + (p % cache.block_size) * token_bytes, sizeof(value));
      state = mix(state) ^ value;
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

std::unique_ptr<models::Model> make_fake_model(FakeModelOptions options, models::RankSetup rank) {
  return std::make_unique<FakeModel>(std::move(options), std::move(rank));
}

}  // namespace baton::engine::testing
