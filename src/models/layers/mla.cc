#include "models/layers/mla.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/gated.h"
#include "kernels/latent_attention.h"
#include "kernels/latent_cache.h"

namespace baton::models {

Result<MlaScratch> MlaScratch::allocate(const MlaConfig& config, int64_t heads, int64_t max_rows, int threads,
                                        parallel::Group group, const parallel::RankPlace& place) {
  MlaScratch scratch;
  const auto floats = [&](int64_t features) { return static_cast<size_t>(max_rows * features) * sizeof(float); };
  const int64_t rank = config.kv_lora_rank, all_values = int64_t{config.heads} * config.value_dim;
  const int64_t widest = std::max<int64_t>(config.q_lora_rank, all_values);
  BATON_TRY_ASSIGN(scratch.inner_, QuantizedInput::allocate(max_rows, widest, group));
  BATON_TRY_ASSIGN(scratch.cq_, TeamRows::allocate(group, max_rows, std::max(1, config.q_lora_rank)));
  BATON_TRY_ASSIGN(scratch.kv_, TeamRows::allocate(group, max_rows, rank + config.rope_dim));
  BATON_TRY_ASSIGN(scratch.heads_out_, group.share(floats(all_values)));
  BATON_TRY_ASSIGN(scratch.heads_,
                   kernels::ActivationBuffer::allocate(max_rows * heads, std::max<int64_t>(rank, config.nope_dim)));
  BATON_TRY_ASSIGN(scratch.q_, tensor::Buffer::allocate(floats(heads * config.query_dim())));
  BATON_TRY_ASSIGN(scratch.nope_, tensor::Buffer::allocate(floats(heads * config.nope_dim)));
  BATON_TRY_ASSIGN(scratch.absorbed_, tensor::Buffer::allocate(floats(heads * (rank + config.rope_dim))));
  BATON_TRY_ASSIGN(scratch.latents_, tensor::Buffer::allocate(floats(heads * rank)));
  if (config.output_gate) {
    BATON_TRY_ASSIGN(scratch.gate_, tensor::Buffer::allocate(floats(heads * config.value_dim)));
  }
  const int64_t attended = std::max(heads, place.group_heads(config.heads).count());
  BATON_TRY_ASSIGN(scratch.attention_,
                   tensor::Buffer::allocate(kernels::latent_attention_scratch_bytes(
                       static_cast<int>(attended), static_cast<int>(rank), config.rope_dim, threads)));
  BATON_TRY_ASSIGN(scratch.lanes_, ContextLanes::allocate(group, place, max_rows, config.heads, rank + config.rope_dim,
                                                          static_cast<int>(rank)));
  return scratch;
}

namespace {

// Rows of heads: elements from one to the next.
struct HeadStrides {
  int64_t row = 0, head = 0;
};

// `count` elements of each head.
void copy_heads(const float* from, HeadStrides from_stride, float* to, HeadStrides to_stride, int64_t rows,
                int64_t heads, int64_t count, ComputePool& pool) {
  pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t h = 0; h < heads; ++h) {
        std::copy_n(from + r * from_stride.row + h * from_stride.head, count,
                    to + r * to_stride.row + h * to_stride.head);
      }
    }
  });
}

}  // namespace

// One call of mla_forward.
class MlaForward {
 public:
  MlaForward(const MlaWeights& weights, const MlaStep& step, TeamStep& team, MlaScratch& scratch, ComputePool& pool)
      : weights_(weights), step_(step), config_(step.config), team_(team), scratch_(scratch), pool_(pool) {}

  void run(QuantizedInput& input, float* y, int64_t hidden) {
    project(input);
    team_.gathered();
    norm_rows();
    team_.rows_made();
    store(input);
    absorb();
    // What others attend to, or choose from, must be in their memory.
    if (own_indexer() || step_.cache.context.size > 1) team_.gathered();
    if (own_indexer()) {
      step_.selection->select(*step_.indexer, index_step(), team_, pool_);
      team_.gathered();
    }
    attend();
    make_values();
    team_.gathered();
    const int64_t features = all_values();
    scratch_.inner_.set(scratch_.heads_out_->as<float>(), team_.rows(), features, &team_);
    weights_.o.apply(scratch_.inner_, y, hidden, pool_);
    team_.gathered();
  }

 private:
  bool own_indexer() const { return step_.indexer_role == IndexerRole::kOwn; }
  int64_t heads() const { return step_.heads.count(); }
  int64_t latent_width() const { return config_.kv_lora_rank + config_.rope_dim; }
  int64_t all_values() const { return int64_t{config_.heads} * config_.value_dim; }
  IndexerStep index_step() const {
    return {.config = *step_.indexer_config,
            .rows = team_.rows(),
            .positions = step_.positions,
            .cos_sin = step_.cos_sin,
            .slices = step_.slices,
            .cache = step_.index_cache,
            .place = step_.place,
            .isa = step_.isa};
  }

  // All that reads the layer's input, which is quantised once.
  void project(QuantizedInput& input) {
    if (weights_.gate) weights_.gate->apply(input, scratch_.gate_.as<float>(), heads() * config_.value_dim, pool_);
    if (!weights_.q_a) weights_.q_b.apply(input, scratch_.q_.as<float>(), heads() * config_.query_dim(), pool_);
    weights_.kv_a.apply(input, scratch_.kv_.gathered(), latent_width(), pool_);
    if (weights_.q_a) weights_.q_a->apply(input, scratch_.cq_.gathered(), config_.q_lora_rank, pool_);
    if (own_indexer()) step_.selection->project(*step_.indexer, index_step(), input, pool_);
  }

  void norm_rows() {
    const parallel::Share mine = team_.mine();
    const int64_t rank = config_.kv_lora_rank, width = latent_width(), q_rank = config_.q_lora_rank;
    float* kv = scratch_.kv_.take(team_, width) + mine.begin * width;
    kernels::rms_norm(kv, width, weights_.kv_a_norm.data(), config_.lora_norm_epsilon, kv, width, mine.count(), rank,
                      step_.isa, pool_);
    if (config_.rotary) {
      kernels::apply_rope(kv + rank, width, 1, config_.rope_dim, config_.rope_dim, step_.positions + mine.begin,
                          step_.cos_sin, config_.pairing, mine.count(), step_.isa, pool_);
    }
    if (weights_.q_a) {
      float* cq = scratch_.cq_.take(team_, q_rank) + mine.begin * q_rank;
      kernels::rms_norm(cq, q_rank, weights_.q_a_norm.data(), config_.lora_norm_epsilon, cq, q_rank, mine.count(),
                        q_rank, step_.isa, pool_);
    }
    if (own_indexer()) step_.selection->make_keys(*step_.indexer, index_step(), team_, pool_);
  }

  // The step's latents and keys into the cache; the queries of the rank's heads, [rows, heads, nope | rope], rotated.
  void store(QuantizedInput& input) {
    const int64_t rank = config_.kv_lora_rank, width = latent_width(), features = heads() * config_.query_dim();
    const float* kv = scratch_.kv_.made(team_);
    kernels::write_latents(step_.cache, step_.slices, kv, width, kv + rank, width, step_.isa, pool_);
    float* q = scratch_.q_.as<float>();
    if (weights_.q_a) {
      scratch_.inner_.set(scratch_.cq_.made(team_), team_.rows(), config_.q_lora_rank, &team_);
      weights_.q_b.apply(scratch_.inner_, q, features, pool_);
    }
    if (own_indexer()) {
      step_.selection->store_keys(*step_.indexer, index_step(), team_, weights_.q_a ? scratch_.inner_ : input, pool_);
    }
    if (!config_.rotary) return;
    kernels::apply_rope(q + config_.nope_dim, features, static_cast<int>(heads()), config_.query_dim(),
                        config_.rope_dim, step_.positions, step_.cos_sin, config_.pairing, team_.rows(), step_.isa,
                        pool_);
  }

  // Each head's queries over latents: W_UK^T q_nope beside the rotary part. [rows, heads, rank | rope]
  void absorb() {
    const int64_t rank = config_.kv_lora_rank, width = latent_width(), rows = team_.rows();
    const float* q = scratch_.q_.as<float>();
    float* nope = scratch_.nope_.as<float>();
    float* latents = scratch_.latents_.as<float>();
    const HeadStrides query = {heads() * config_.query_dim(), config_.query_dim()};
    const HeadStrides plain = {heads() * config_.nope_dim, config_.nope_dim};
    HeadStrides wide = {heads() * width, width};
    float* absorbed = scratch_.absorbed_.as<float>();
    if (scratch_.lanes_.serves(team_)) {
      absorbed = scratch_.lanes_.queries() + step_.heads.begin * width;
      wide.row = scratch_.lanes_.query_stride();
    }
    copy_heads(q, query, nope, plain, rows, heads(), config_.nope_dim, pool_);
    kernels::matmul_heads(weights_.key_up, nope, plain.row, rows, latents, heads() * rank, scratch_.heads_, pool_);
    copy_heads(latents, {heads() * rank, rank}, absorbed, wide, rows, heads(), rank, pool_);
    copy_heads(q + config_.nope_dim, query, absorbed + rank, wide, rows, heads(), config_.rope_dim, pool_);
  }

  std::span<std::byte> attention_scratch() { return {scratch_.attention_.data(), scratch_.attention_.size()}; }

  kernels::LatentAttentionArgs attention_args(int64_t heads, const float* q, int64_t q_stride) {
    const bool sparse = step_.indexer_role != IndexerRole::kNone;
    return {.cache = step_.cache,
            .heads = static_cast<int>(heads),
            .scale = config_.scale,
            .q = q,
            .q_stride = q_stride,
            .out = scratch_.latents_.as<float>(),
            .out_stride = heads * config_.kv_lora_rank,
            .selected = sparse ? step_.selection->positions() : nullptr,
            .selected_stride = sparse ? step_.selection->stride() : 0,
            .selected_count = sparse ? step_.selection->counts() : nullptr,
            .isa = step_.isa};
  }

  // Attention of the rank's heads over the cache: [rows, heads, rank].
  void attend() {
    ContextLanes& lanes = scratch_.lanes_;
    if (!lanes.serves(team_)) {
      return kernels::latent_attention(
          attention_args(heads(), scratch_.absorbed_.as<float>(), heads() * latent_width()), step_.slices,
          attention_scratch(), pool_);
    }
    const parallel::Share group = lanes.group_heads();
    kernels::latent_attention_lanes(attention_args(group.count(), lanes.group_queries(), lanes.query_stride()),
                                    step_.slices, lanes.partials(), attention_scratch(), pool_);
    team_.gathered();
    kernels::merge_lanes({.partials = lanes.partials(),
                          .first_head = static_cast<int>(step_.heads.begin - group.begin),
                          .heads = static_cast<int>(heads()),
                          .out = scratch_.latents_.as<float>(),
                          .out_stride = heads() * config_.kv_lora_rank,
                          .isa = step_.isa},
                         step_.slices, attention_scratch(), pool_);
  }

  // The heads' values and the output gate, into the team's [rows, all heads, value].
  void make_values() {
    const int64_t rank = config_.kv_lora_rank, rows = team_.rows();
    float* out = scratch_.heads_out_->as<float>() + step_.heads.begin * config_.value_dim;
    kernels::matmul_heads(weights_.value_up, scratch_.latents_.as<float>(), heads() * rank, rows, out, all_values(),
                          scratch_.heads_, pool_);
    if (!weights_.gate) return;
    const int64_t features = heads() * config_.value_dim;
    kernels::sigmoid_mul(scratch_.gate_.as<float>(), features, out, all_values(), rows, features, step_.isa, pool_);
  }

  const MlaWeights& weights_;
  const MlaStep& step_;
  const MlaConfig& config_;
  TeamStep& team_;
  MlaScratch& scratch_;
  ComputePool& pool_;
};

void mla_forward(const MlaWeights& weights, const MlaStep& step, TeamStep& team, MlaScratch& scratch,
                 QuantizedInput& input, float* y, int64_t hidden, ComputePool& pool) {
  MlaForward(weights, step, team, scratch, pool).run(input, y, hidden);
}

}  // namespace baton::models
