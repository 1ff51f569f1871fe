// The tree over lanes that ranks have left in shared memory. Sketch: 16 states of 512 floats a head are read once, 32
// KiB, from other cores' caches; the computing of one lane's tile costs more than all of it.
#include "kernels/lane_partials.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/check.h"
#include "kernels/attention_ops.h"
#include "kernels/held_lanes.h"

namespace baton::kernels {
namespace {

constexpr int kMergeDepth = 5;  // lanes pending in a binary merge of 16, with the newest
constexpr float kEmpty = -std::numeric_limits<float>::infinity();

int64_t thread_floats(int dim) { return kMergeDepth * ((int64_t{dim} + 15) / 16 * 16); }

// Merges one head's lanes, which are read only: a state is copied when it is first merged into.
class LaneTree {
 public:
  LaneTree(const AttentionOps& ops, int padded, float* scratch) : ops_(ops), padded_(padded) {
    for (int i = 0; i < kMergeDepth; ++i) states_[i].own = scratch + int64_t{i} * padded;
  }
  void clear() { depth_ = 0; }
  void push(int lane, float m, float sum, const float* o) {
    State& top = states_[depth_++];
    top.m = m;
    top.sum = sum;
    top.o = o;
    for (int bits = lane; bits & 1; bits >>= 1) merge_top();
  }
  void finish(int dim, float* out) {
    while (depth_ > 1) merge_top();
    ops_.finish(states_[0].o, states_[0].sum, dim, out);
  }

 private:
  struct State {
    float m = 0;
    float sum = 0;
    const float* o = nullptr;  // of a lane, or own
    float* own = nullptr;
  };

  void merge_top() {
    --depth_;
    State& a = states_[depth_ - 1];
    State& b = states_[depth_];
    if (b.m == kEmpty) return;
    if (a.m == kEmpty) return std::swap(a, b);
    if (a.o != a.own) std::copy_n(a.o, padded_, a.own);
    a.o = a.own;
    ops_.merge(&a.m, &a.sum, a.own, b.m, b.sum, b.o, padded_);
  }

  const AttentionOps& ops_;
  const int padded_;
  std::array<State, kMergeDepth> states_;
  int depth_ = 0;
};

// Heads [begin, end) of the wanted, of partial row `row`.
void merge_row(const MergeLanesArgs& args, LaneTree& tree, int64_t row, int lanes, int begin, int end, float* out) {
  const LanePartials& partials = args.partials;
  for (int h = begin; h < end; ++h) {
    const int head = args.first_head + h;
    tree.clear();
    for (int lane = 0; lane < lanes; ++lane) {
      tree.push(lane, partials.maxima(row, lane)[head], partials.sums(row, lane)[head],
                partials.outputs(row, lane) + head * partials.padded());
    }
    tree.finish(partials.dim, out + int64_t{h} * partials.dim);
  }
}

// Units [begin, end) of (row, head).
void merge_units(const MergeLanesArgs& args, std::span<const SequenceSlice> slices, LaneTree& tree, int64_t begin,
                 int64_t end) {
  int64_t row = 0;
  for (const SequenceSlice& slice : slices) {
    const int64_t first = row * args.heads;
    row += std::max(0, slice.row_count);
    if (first >= end) return;
    for (int64_t r = std::max<int64_t>(0, begin - first) / args.heads; r < slice.row_count; ++r) {
      const int64_t unit = first + r * args.heads;
      const auto from = static_cast<int>(std::clamp<int64_t>(begin - unit, 0, args.heads));
      const auto to = static_cast<int>(std::clamp<int64_t>(end - unit, 0, args.heads));
      if (to <= from) break;
      merge_row(args, tree, first / args.heads + r, lanes_used(slice.context_len + r), from, to,
                args.out + (slice.row_begin + r) * args.out_stride);
    }
  }
}

}  // namespace

size_t lane_partials_bytes(int64_t rows, int heads, int dim) {
  return static_cast<size_t>(rows * kAttentionLanes * LanePartials{.heads = heads, .dim = dim}.lane_floats()) *
         sizeof(float);
}

size_t merge_lanes_scratch_bytes(int dim, int threads) {
  return static_cast<size_t>(threads * thread_floats(dim)) * sizeof(float) + 64;
}

void merge_lanes(const MergeLanesArgs& args, std::span<const SequenceSlice> slices, std::span<std::byte> scratch,
                 ComputePool& pool) {
  const LanePartials& partials = args.partials;
  BATON_CHECK(args.first_head >= 0 && args.heads >= 0 && args.first_head + args.heads <= partials.heads,
              "heads {} + {} of {}", args.first_head, args.heads, partials.heads);
  BATON_CHECK(scratch.size() >= merge_lanes_scratch_bytes(partials.dim, pool.threads()),
              "scratch of {} bytes is too small", scratch.size());
  int64_t units = 0;
  for (const SequenceSlice& slice : slices) units += int64_t{std::max(0, slice.row_count)} * args.heads;
  if (units == 0) return;
  auto* base = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) & ~uintptr_t{63});
  const int threads = pool.threads();
  const auto body = [&](int thread) {
    LaneTree tree(attention_ops(args.isa), static_cast<int>(partials.padded()),
                  base + thread * thread_floats(partials.dim));
    merge_units(args, slices, tree, units * thread / threads, units * (thread + 1) / threads);
  };
  if (threads == 1) return body(0);
  pool.run(body);
}

}  // namespace baton::kernels
