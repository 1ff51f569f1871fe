// Cuts K into the segments of the canonical order, and one product's panels over the threads.
#include "kernels/matmul.h"

#include <algorithm>

#include "kernels/matmul_product.h"
#include "kernels/matmul_tile.h"

namespace baton::kernels {
namespace {

using tensor::DType;

constexpr int kLeaves = 16;

// The order in which K is summed. In sequence: one segment, or for bf16 a chain of them.
std::vector<KSegment> sequence_segments(const MatmulSpec& spec) {
  const int64_t span = spec.dtype == DType::kBF16 ? bf16_span(spec.in_features) : spec.in_features;
  std::vector<KSegment> segments;
  for (int64_t k = 0; k < spec.in_features; k += span) {
    segments.push_back({.begin = k, .end = std::min(k + span, spec.in_features), .merges = k == 0 ? 0 : 1});
  }
  return segments;
}

// Appends the leaves [first, first + count) that are not empty; returns whether there was one.
bool append_subtree(const MatmulSpec& spec, int first, int count, std::vector<KSegment>& segments) {
  if (count == 1) {
    const int64_t units = spec.in_features / spec.tree_unit;
    const int64_t begin = units * first / kLeaves * spec.tree_unit;
    const int64_t end = units * (first + 1) / kLeaves * spec.tree_unit;
    if (begin < end) segments.push_back({.begin = begin, .end = end});
    return begin < end;
  }
  const bool left = append_subtree(spec, first, count / 2, segments);
  const bool right = append_subtree(spec, first + count / 2, count / 2, segments);
  if (left && right) ++segments.back().merges;
  return left || right;
}

}  // namespace

std::vector<KSegment> k_segments(const MatmulSpec& spec) {
  if (is_channel(spec.dtype)) return {{.begin = 0, .end = spec.in_features}};  // integer sums: any order is exact
  if (spec.k_order == KOrder::kSequential) return sequence_segments(spec);
  std::vector<KSegment> segments;
  append_subtree(spec, 0, kLeaves, segments);
  return segments;
}

void matmul(const PackedMatrix& w, const ActivationBuffer& x, const float* bias, float* y, int64_t y_stride,
            ComputePool& pool) {
  const MatmulProduct product{.w = &w, .x = &x, .row_count = x.rows(), .bias = bias, .y = y, .y_stride = y_stride};
  check_product(product);
  pool.parallel_for(w.layout().panels, panels_per_tile(w.spec().dtype),
                    [&product](int64_t begin, int64_t end) { multiply_panels(product, begin, end); });
}

}  // namespace baton::kernels
