// y = x W^T for weights kept in their file's format, activations in the format that belongs to it.
//
// Exactness (docs/exactness.md, rules 1 to 3): a row of y depends only on that row of x and on W: never on how many
// rows there are, which thread computes it, or whether oneDNN serves the op. Integer inside a group, fp32 across groups
// in ascending order with fma; with KOrder::kTree the groups are first summed in 16 leaves, which are added as a tree.
// The formula of each format stands at the head of matmul_ref.cc; all quantised formats and f32 and f16 give the same
// bits on every instruction set, bf16 on portable and avx2 (avx512 uses vdpbf16ps, whose rounding is its own).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/compute_pool.h"
#include "base/status.h"
#include "kernels/panel_layout.h"
#include "tensor/buffer.h"
#include "tensor/cpu.h"
#include "tensor/dtype.h"

namespace baton::kernels {

enum class ActivationFormat : uint8_t {
  kF32,           // weights f32, f16
  kBF16,          // weights bf16
  kInt8Group32,   // q4_0 q4_1 q5_0 q5_1 q8_0: scale = max|x|/127 per 32 inputs, round to nearest even
  kInt8Group256,  // q4_k q5_k q6_k
};
ActivationFormat activation_format(tensor::DType weight);

enum class KOrder : uint8_t {
  kSequential,  // never split over ranks: q, k, v, gate, up, lm_head
  kTree,        // canonical 16-leaf tree over K: o_proj, down_proj
};

struct MatmulSpec {
  int64_t out_features = 0;  // N
  int64_t in_features = 0;   // K, a multiple of the weight's block
  tensor::DType dtype = tensor::DType::kF32;
  KOrder k_order = KOrder::kSequential;
  // With kTree: inputs per unit (a multiple of lcm(weight group, activation group); the head dimension for o_proj).
  int64_t tree_unit = 0;
  tensor::Isa isa = tensor::Isa::kPortable;
  // oneDNN may serve this op for wide inputs, where it is bit-equal to our own kernel (bf16, kSequential, kAvx512).
  bool allow_onednn = true;
};

// A weight matrix in the layout its kernels read. Immutable after packing; shared by all threads.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  // Reserves the packed layout; fill it with pack_rows before use. Rejects a K that the format can't hold.
  static Result<PackedMatrix> reserve(const MatmulSpec& spec);
  // Packs rows [row_begin, row_begin + row_count) from the file's row-major bytes (dtype_bytes(dtype, K) a row).
  // row_begin must be a multiple of kPanelRows; row_count too, except at the end. Different ranges may be packed by
  // different threads at once.
  static constexpr int64_t kPanelRows = 16;
  void pack_rows(int64_t row_begin, int64_t row_count, const std::byte* rows);

  const MatmulSpec& spec() const { return spec_; }
  const std::byte* data() const { return data_.data(); }
  size_t bytes() const { return data_.size(); }
  // Where the parts of a panel lie (panel_layout.h).
  const PanelLayout& layout() const { return layout_; }
  // Whether oneDNN was found fit to serve this matrix for many rows.
  bool uses_onednn() const { return uses_onednn_; }

 private:
  MatmulSpec spec_;
  PanelLayout layout_;
  bool uses_onednn_ = false;
  tensor::Buffer data_;
};

// Rows of activations in one ActivationFormat, quantised once and used by every matmul that reads them.
class ActivationBuffer {
 public:
  ActivationBuffer() = default;
  // Room for `max_rows` rows of up to `max_features` inputs in any format. kInvalidArgument for sizes below 1.
  static Result<ActivationBuffer> allocate(int64_t max_rows, int64_t max_features);

  // x: [rows, features] fp32, row stride `x_stride` elements. Threads split over rows. int8 formats need a multiple of
  // 32 (256) features. A group whose maximum is below 2^-120 becomes all zero with scale 0; one that holds a NaN or an
  // infinity becomes zeros with scale NaN, so that every output it feeds is NaN.
  void quantize(const float* x, int64_t x_stride, int64_t rows, int64_t features, ActivationFormat format,
                tensor::Isa isa, ComputePool& pool);

  ActivationFormat format() const { return format_; }
  int64_t rows() const { return rows_; }
  int64_t features() const { return features_; }
  int64_t row_stride_bytes() const { return row_stride_bytes_; }
  int64_t scales_per_row() const { return scales_per_row_; }
  // values: f32, bf16 or int8, [rows, features], row stride row_stride_bytes().
  const std::byte* values() const { return values_.data(); }
  // int8 formats: [rows, scales_per_row] fp32 scales, and the int32 sum of each group of 32 quantised inputs
  // ([rows, features / 32]), which formats with a minimum need.
  const float* scales() const { return scales_.as<float>(); }
  const int32_t* group_sums() const { return sums_.as<int32_t>(); }
  // kInt8Group32: scale times sum of each group, [rows, features / 32].
  const float* scaled_sums() const { return scaled_sums_.as<float>(); }
  // kInt8Group256: [rows, features / 256, kShortSums]: the sums of the 8 runs of 32, then those of the 16 runs of 16.
  static constexpr int kShortSums = 24;
  const int16_t* short_sums() const { return short_sums_.as<int16_t>(); }

 private:
  ActivationFormat format_ = ActivationFormat::kF32;
  int64_t rows_ = 0, features_ = 0, row_stride_bytes_ = 0, scales_per_row_ = 0;
  int64_t max_rows_ = 0, max_features_ = 0;
  tensor::Buffer values_, scales_, sums_, scaled_sums_, short_sums_;
};

// y[r, n] = sum_k x[r, k] W[n, k] (+ bias[n] added last, if bias is not null).
// y: [rows, y_stride] fp32; x.format() must be activation_format(w.spec().dtype). Threads split over n.
void matmul(const PackedMatrix& w, const ActivationBuffer& x, const float* bias, float* y, int64_t y_stride,
            ComputePool& pool);

// Row `index` of W as fp32 [K]: the embedding look-up of a tied or quantised embedding table, from packed form.
void unpack_row(const PackedMatrix& w, int64_t index, float* out);

}  // namespace baton::kernels
