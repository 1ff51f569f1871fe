// Kimi Delta Attention over recurrent state: short convolution, gates and the delta rule, token by token in fp32.
//
// Per head, with S [key_dim, value_dim] and q, k, v the convolved and normed rows of a token:
//   q, k, v = silu(conv(z)): y_t[c] = sum_j w[j, c] z_{t - width + 1 + j}[c], zeros before the sequence's start
//   q = q / sqrt(sum q^2 + unit_epsilon) * key_dim^-0.5;  k = k / sqrt(sum k^2 + unit_epsilon)
//   g = -exp(A_log) softplus(r + dt_bias)                    (kSoftplus: Kimi Linear)
//   g = lower_bound sigmoid(exp(A_log) (r + dt_bias))        (kBoundedSigmoid: Kimi K3)
//   S <- diag(exp g) S;  u = sigmoid(beta) (v - S^T k);  S <- S + k u^T;  o = S^T q
// Tokens are taken in order, so that a result never depends on where a prompt was cut (rule 8).
//
// Cost of a token and head at 128 x 128: 65,536 multiply-adds or multiplies (four per element of S); S is 64 KiB, read
// and written once per slice from memory and once per token from the first-level cache.
#pragma once

#include <cstdint>
#include <span>

#include "base/compute_pool.h"
#include "base/status.h"
#include "kernels/kv_view.h"
#include "tensor/cpu.h"

namespace baton::kernels {

struct KdaShape {
  int heads = 0;
  int key_dim = 0;    // of a head
  int value_dim = 0;  // of a head
  int conv_width = 0;

  int64_t key_features() const { return int64_t{heads} * key_dim; }
  int64_t value_features() const { return int64_t{heads} * value_dim; }
  bool operator==(const KdaShape&) const = default;
};
inline constexpr int kKdaMaxDim = 256;
inline constexpr int kKdaMaxConvWidth = 8;
// kInvalidArgument for a shape outside the limits above, or below 1.
Result<void> check_kda_shape(const KdaShape& shape);

// Bytes of a head's state in a slot: S [key_dim][value_dim], then the last conv_width - 1 inputs of the convolution of
// q, of k and of v ([conv_width - 1][dim] each, oldest first), all fp32.
int64_t kda_state_head_bytes(int key_dim, int value_dim, int conv_width);

// A checkpoint's depthwise weights [channels, width] as kda() reads them: [width, channels].
void transpose_conv(const float* weights, int64_t channels, int width, float* out);

enum class KdaDecay : uint8_t { kSoftplus, kBoundedSigmoid };

struct KdaArgs {
  KdaShape shape;
  KdaDecay decay = KdaDecay::kSoftplus;
  float lower_bound = 0;       // kBoundedSigmoid
  float unit_epsilon = 1e-6f;  // of the unit norms of q and k; llama.cpp takes another
  // Rows of the step, before the convolution; row strides in elements.
  const float* q = nullptr;  // [rows, heads * key_dim]
  const float* k = nullptr;
  const float* v = nullptr;  // [rows, heads * value_dim]
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;
  const float* decay_input = nullptr;  // r [rows, heads * key_dim]
  int64_t decay_stride = 0;
  const float* beta = nullptr;  // [rows, heads], before the sigmoid
  int64_t beta_stride = 0;
  const float* q_conv = nullptr;  // [width, heads * key_dim]
  const float* k_conv = nullptr;
  const float* v_conv = nullptr;   // [width, heads * value_dim]
  const float* dt_bias = nullptr;  // [heads * key_dim]
  const float* a_log = nullptr;    // [heads]
  StateView state;                 // of this layer
  float* out = nullptr;            // [rows, heads * value_dim]
  int64_t out_stride = 0;
  tensor::Isa isa = tensor::Isa::kPortable;
};

// Runs each slice's tokens through the state in its slot, which it updates. A slice with context_len 0 starts from
// zero. Slices must have distinct slots. Threads split over (head, slice).
void kda(const KdaArgs& args, std::span<const SequenceSlice> slices, ComputePool& pool);

}  // namespace baton::kernels
