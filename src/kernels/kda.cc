#include "kernels/kda.h"

#include <cstring>

#include "base/check.h"
#include "kernels/kda_ops.h"
#include "kernels/math.h"

namespace baton::kernels {
namespace {

const KdaOps& kda_ops(tensor::Isa isa) {
  switch (isa) {
    case tensor::Isa::kAvx512:
      return kKdaAvx512;
    case tensor::Isa::kAvx2:
      return kKdaAvx2;
    case tensor::Isa::kPortable:
      break;
  }
  return kKdaPortable;
}

}  // namespace

Result<void> check_kda_shape(const KdaShape& shape) {
  if (shape.heads < 1 || shape.key_dim < 1 || shape.key_dim > kKdaMaxDim || shape.value_dim < 1 ||
      shape.value_dim > kKdaMaxDim || shape.conv_width < 1 || shape.conv_width > kKdaMaxConvWidth) {
    return fail(
        Code::kInvalidArgument,
        "linear attention with {} heads of {} keys and {} values and a convolution of width {}: heads must be at "
        "least 1, dimensions 1 to {}, the width 1 to {}",
        shape.heads, shape.key_dim, shape.value_dim, shape.conv_width, kKdaMaxDim, kKdaMaxConvWidth);
  }
  return {};
}

int64_t kda_state_head_bytes(int key_dim, int value_dim, int conv_width) {
  const int64_t window = int64_t{conv_width - 1} * (2 * int64_t{key_dim} + value_dim);
  return (int64_t{key_dim} * value_dim + window) * static_cast<int64_t>(sizeof(float));
}

void transpose_conv(const float* weights, int64_t channels, int width, float* out) {
  for (int64_t c = 0; c < channels; ++c) {
    for (int j = 0; j < width; ++j) out[j * channels + c] = weights[c * width + j];
  }
}

void kda(const KdaArgs& args, std::span<const SequenceSlice> slices, ComputePool& pool) {
  BATON_CHECK(check_kda_shape(args.shape).has_value(), "shape {} {} {} {}", args.shape.heads, args.shape.key_dim,
              args.shape.value_dim, args.shape.conv_width);
  for (const SequenceSlice& slice : slices) BATON_CHECK(slice.state_slot >= 0, "row {}", slice.row_begin);
  const auto head = kda_ops(args.isa).head;
  const auto state_bytes =
      static_cast<size_t>(kda_state_head_bytes(args.shape.key_dim, args.shape.value_dim, args.shape.conv_width));
  const auto count = static_cast<int64_t>(slices.size());
  // Heads outside: a thread's share then holds long and short slices alike.
  pool.parallel_for(args.shape.heads * count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int h = static_cast<int>(i / count);
      const SequenceSlice& slice = slices[i % count];
      auto* state = reinterpret_cast<float*>(args.state.at(slice.state_slot, h));
      if (slice.context_len == 0) std::memset(state, 0, state_bytes);
      head(args, slice, h, exp_exact(args.a_log[h]), state);
    }
  });
}

}  // namespace baton::kernels
