// How the ranks of a stage share the rows of a step.
//
// Two kinds of work. A matrix is cut by its outputs: each rank writes its columns, for all rows, into memory of the
// team, and after gathered() all read them. What is done row by row (norms, sums, choices) is cut by rows; with few
// rows each rank does all of them in memory of its own, since waiting would cost more than the work.
//
// Memory of the team is written again only after another barrier than the one that showed it: each layer has several.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "parallel/grid.h"
#include "parallel/group.h"
#include "tensor/buffer.h"

namespace baton::models {

class TeamStep {
 public:
  static constexpr int64_t kFewRows = 16;

  TeamStep(parallel::Group group, int64_t rows)
      : group_(group), rows_(rows), few_(group.size() > 1 && rows <= kFewRows), cut_(part_of(rows)) {}

  int64_t rows() const { return rows_; }
  int ranks() const { return group_.size(); }
  int rank() const { return group_.rank(); }
  // Whether each rank does the row-wise work of all rows.
  bool few() const { return few_; }
  // Rows whose row-wise work this rank does.
  parallel::Share mine() const { return few_ ? parallel::Share{0, rows_} : cut_; }
  // This rank's part where rows are cut however few there are.
  parallel::Share cut() const { return cut_; }
  // This rank's part of columns that a matrix makes.
  parallel::Share columns(int64_t total) const { return columns_of(total, group_); }

  // All ranks have written their columns, or their cut rows.
  void gathered() { group_.barrier(); }
  // Row-wise work is done: all may read the rows that each rank made.
  void rows_made() {
    if (!few_) group_.barrier();
  }

  // This rank's part of some rows, where they are cut however few there are.
  parallel::Share part_of(int64_t rows) const { return parallel::share_of(rows, group_.size(), group_.rank()); }

  // Outputs of a matrix are cut in whole panels of the kernels.
  static parallel::Share columns_of(int64_t total, const parallel::Group& group) {
    constexpr int64_t kPanel = 16;
    return parallel::share_of(total, group.size(), group.rank(), kPanel);
  }
  // The most rows that mine() can have.
  static int64_t mine_max(const parallel::Group& group, int64_t max_rows) {
    const int64_t even = (max_rows + group.size() - 1) / group.size();
    return group.size() == 1 ? max_rows : std::max(even, std::min(max_rows, kFewRows));
  }

 private:
  parallel::Group group_;
  int64_t rows_ = 0;
  bool few_ = false;
  parallel::Share cut_;
};

// Which of ascending `wanted` rows lie in `rows`: [first, last) of them.
inline parallel::Share rows_within(std::span<const int32_t> wanted, parallel::Share rows) {
  const auto at = [&](int64_t row) { return std::ranges::lower_bound(wanted, row) - wanted.begin(); };
  return {at(rows.begin), at(rows.end)};
}

// Rows of features that ranks make together: their columns in memory of the team, and the rows after row-wise work,
// which stand in the same memory or, with few rows, in each rank's own.
class TeamRows {
 public:
  TeamRows() = default;
  // The same call on each rank. kResourceExhausted.
  static Result<TeamRows> allocate(parallel::Group group, int64_t max_rows, int64_t features) {
    TeamRows rows;
    const auto bytes = [&](int64_t count) { return static_cast<size_t>(count * features) * sizeof(float); };
    BATON_TRY_ASSIGN(rows.shared_, group.share(bytes(max_rows)));
    if (group.size() > 1) {
      BATON_TRY_ASSIGN(rows.own_, tensor::Buffer::allocate(bytes(std::min(max_rows, TeamStep::kFewRows))));
    }
    return rows;
  }
  // [rows, features]
  float* gathered() { return shared_->as<float>(); }
  float* made(const TeamStep& step) { return step.few() ? own_.as<float>() : gathered(); }
  // made() with what was gathered in it: for row-wise work in place.
  float* take(const TeamStep& step, int64_t features) {
    if (step.few()) std::copy_n(gathered(), step.rows() * features, own_.as<float>());
    return made(step);
  }

 private:
  std::shared_ptr<tensor::Buffer> shared_;
  tensor::Buffer own_;
};

}  // namespace baton::models
