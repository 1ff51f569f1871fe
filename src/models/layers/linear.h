// A weight matrix (a rank's part of it) with its bias, and the input that several of them share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/compute_pool.h"
#include "kernels/matmul.h"
#include "models/layers/team.h"

namespace baton::models {

// fp32 rows that are quantised once for all matrices of one activation format that read them. Used by one thread.
//
// The ranks of a team quantise a part of the rows each, in memory of the team; few rows each does itself. So ranks must
// apply the same matrices in the same order, also those of which they hold nothing.
class QuantizedInput {
 public:
  // The same call on each rank of the team.
  static Result<QuantizedInput> allocate(int64_t max_rows, int64_t max_features, parallel::Group group = {}) {
    QuantizedInput input;
    const int64_t own_rows = group.size() == 1 ? max_rows : std::min(max_rows, TeamStep::kFewRows);
    BATON_TRY_ASSIGN(input.own_, kernels::ActivationBuffer::allocate(own_rows, max_features));
    if (group.size() == 1) return input;
    for (kernels::ActivationBuffer& buffer : input.shared_) {
      BATON_TRY_ASSIGN(auto memory, group.share(kernels::ActivationBuffer::bytes(max_rows, max_features)));
      BATON_TRY_ASSIGN(buffer, kernels::ActivationBuffer::over(std::move(memory), max_rows, max_features));
    }
    return input;
  }
  // x: [rows, features], dense; must stay as it is until the next set(). With a team: its ranks set the same rows, and
  // of many rows each needs to have only its part (TeamStep::part_of) when the first matrix is applied.
  void set(const float* x, int64_t rows, int64_t features, TeamStep* team = nullptr) {
    x_ = x;
    rows_ = rows;
    features_ = features;
    team_ = team;
    fresh_ = false;
  }
  // quant: of the weight that reads it, where the format is kInt8Static.
  const kernels::ActivationBuffer& as(kernels::ActivationFormat format, tensor::Isa isa, ComputePool& pool,
                                      kernels::StaticQuant quant = {}) {
    if (fresh_ && last().format() == format && last().static_quant() == quant) return last();
    fresh_ = true;
    if (team_ == nullptr || team_->ranks() == 1 || team_->few()) {
      last_ = 2;
      own_.quantize(x_, features_, rows_, features_, format, isa, pool, quant);
      return own_;
    }
    // In turns: when all have come to the barrier of one, none reads the other any more.
    last_ = turn_;
    turn_ = 1 - turn_;
    const parallel::Share part = team_->part_of(rows_);
    last().quantize_part(x_, features_, rows_, features_, format, isa, pool, quant, part.begin, part.end);
    team_->gathered();
    return last();
  }

 private:
  kernels::ActivationBuffer& last() { return last_ == 2 ? own_ : shared_[last_]; }

  kernels::ActivationBuffer own_;        // all rows of one rank; few of one among several
  kernels::ActivationBuffer shared_[2];  // of the team
  int turn_ = 0;
  int last_ = 2;        // into which x_ was last quantised: of the team, 2: own
  bool fresh_ = false;  // it has been
  const float* x_ = nullptr;
  int64_t rows_ = 0, features_ = 0;
  TeamStep* team_ = nullptr;
};

// A matrix, or the consecutive outputs of one that a rank holds; possibly none.
struct Linear {
  kernels::PackedMatrix weight;
  std::vector<float> bias;  // [outputs held], or empty
  int64_t first = 0;        // of the outputs held, among the whole matrix's

  int64_t out_features() const { return weight.spec().out_features; }
  // y: [rows, ...] with row stride y_stride; the outputs held are written from column `first` on.
  void apply(QuantizedInput& x, float* y, int64_t y_stride, ComputePool& pool) const {
    apply_held(x, y + first, y_stride, pool);
  }
  // The same from column 0 on.
  void apply_held(QuantizedInput& x, float* y, int64_t y_stride, ComputePool& pool) const {
    const kernels::MatmulSpec& spec = weight.spec();
    const auto& quantised = x.as(kernels::activation_format(spec.dtype), spec.isa, pool, weight.static_quant());
    if (spec.out_features == 0) return;
    kernels::matmul(weight, quantised, bias.empty() ? nullptr : bias.data(), y, y_stride, pool);
  }
};

// The rows of those tokens that `table`, outputs of an embedding by vocabulary, holds: into y [tokens, hidden].
inline void embed_tokens(const Linear& table, std::span<const int32_t> tokens, float* y, int64_t hidden,
                         ComputePool& pool) {
  const int64_t first = table.first, end = first + table.out_features();
  pool.parallel_for(std::ssize(tokens), 1, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      if (first <= tokens[i] && tokens[i] < end) kernels::unpack_row(table.weight, tokens[i] - first, y + i * hidden);
    }
  });
}

}  // namespace baton::models
