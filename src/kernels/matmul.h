// y = x W^T for weights kept in their file's format, activations in the format that belongs to it.
//
// Exactness (docs/exactness.md, rules 1 to 3): a row of y depends only on that row of x and on W: never on how many
// rows there are, which thread computes it, or whether oneDNN serves the op. Integer inside a group, fp32 across groups
// in ascending order with fma; with KOrder::kTree the groups are first summed in 16 leaves, which are added as a tree.
// The formula of each format stands at the head of matmul_ref.cc. Formats with int8 activations, f32 and f16 give the
// same bits on every instruction set; bf16 activations on portable and avx2 (avx512 uses vdpbf16ps, whose rounding is
// its own, and which takes subnormals as zero).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/compute_pool.h"
#include "base/status.h"
#include "kernels/panel_layout.h"
#include "kernels/static_quant.h"
#include "tensor/buffer.h"
#include "tensor/cpu.h"
#include "tensor/dtype.h"

namespace baton::kernels {

enum class ActivationFormat : uint8_t {
  kF32,           // weights f32, f16
  kBF16,          // weights bf16, fp8_block, mxfp8
  kInt8Group32,   // q4_0 q4_1 q5_0 q5_1 q8_0 mxfp4 int4_group32: scale = max|x|/127 per 32, round to nearest even
  kInt8Group256,  // q4_k q5_k q6_k
  kInt8Row,       // int8_channel, int4_channel: the same over the whole row
  kInt8Static,    // int8_static: by the weight's own StaticQuant
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

// The segments (panel_layout.h) that spell the order of spec.
std::vector<KSegment> k_segments(const MatmulSpec& spec);

// Memory for many small matrices of any shape and format, in the order in which they are asked for: whole huge pages
// under all of them, and one stream for a reader that goes through a model's layers. A matrix of its own pages costs a
// TLB miss and a restart of the prefetcher every 4 KiB: at 200 KB a matrix, a third to a half of the read speed. Each
// block lives as long as the last matrix in it. Used by one thread.
class MatrixMemory {
 public:
  struct Place {
    std::shared_ptr<tensor::Buffer> storage;
    std::byte* data = nullptr;  // zeroed, aligned to 64
  };
  // kResourceExhausted.
  Result<Place> take(int64_t bytes);

 private:
  static constexpr int64_t kBlockBytes = int64_t{32} << 20;
  static constexpr int64_t kOwnBytes = int64_t{8} << 20;  // from here on a matrix has an allocation of its own
  std::shared_ptr<tensor::Buffer> block_;
  int64_t used_ = 0;
};

// A weight matrix in the layout its kernels read. Immutable after packing; shared by all threads.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  PackedMatrix(PackedMatrix&&) = default;
  PackedMatrix& operator=(PackedMatrix&&) = default;
  // Reserves the packed layout; fill it with pack_rows before use, and call finish. Rejects a K that the format can't
  // hold: whole blocks; for the channel formats few enough that the int32 sum of a row can't overflow (131072).
  static Result<PackedMatrix> reserve(const MatmulSpec& spec);
  // The same, beside other matrices.
  static Result<PackedMatrix> reserve(const MatmulSpec& spec, MatrixMemory& memory);
  // `count` matrices in one allocation, which lives as long as the last of them: experts and heads. Alone, small ones
  // would lie outside huge pages (a third of the read speed), and a model's experts can be more than the mappings that
  // a process may have.
  static Result<std::vector<PackedMatrix>> reserve_many(const MatmulSpec& spec, int64_t count);
  // No outputs of a matrix: says how the others' input is quantised. spec.out_features is 0.
  static PackedMatrix none(const MatmulSpec& spec, StaticQuant quant);
  // Packs rows [row_begin, row_begin + row_count) from the file's row-major bytes (dtype_bytes(dtype, K) a row).
  // row_begin must be a multiple of kPanelRows; row_count too, except at the end. Different ranges may be packed by
  // different threads at once.
  static constexpr int64_t kPanelRows = 16;
  void pack_rows(int64_t row_begin, int64_t row_count, const std::byte* rows);
  // Channel formats: the scales of rows [row_begin, row_begin + scales.size()); int8_static: its deq_scale. Like
  // pack_rows, by several threads at once for different ranges.
  void set_channel_scales(int64_t row_begin, std::span<const float> scales);
  // int8_static: how its activations are quantised, and what is added to the integer sums, [N].
  void set_static(StaticQuant quant, std::span<const int32_t> quant_bias);
  // After all rows are packed. kDataLoss when the checkpoint can't be meant so: a scale that was never given or is not
  // a finite number, an e4m3 code that is not a number (row and inputs are named), an input scale that is not positive,
  // an offset beyond int8, a quant_bias that could overflow the int32 sum.
  Result<void> finish() const;

  const MatmulSpec& spec() const { return spec_; }
  const std::byte* data() const { return data_; }
  size_t bytes() const { return static_cast<size_t>(layout_.panels * layout_.panel_bytes); }
  // Channel formats: [N], filled up to whole panels. quant_bias: int8_static alone, else null.
  const float* channel_scales() const { return channel_scales_; }
  const int32_t* quant_bias() const { return quant_bias_; }
  StaticQuant static_quant() const { return static_quant_; }
  // Where the parts of a panel lie (panel_layout.h).
  const PanelLayout& layout() const { return layout_; }
  // The order in which K is summed.
  std::span<const KSegment> segments() const { return segments_; }
  // Whether oneDNN was found fit to serve this matrix for many rows.
  bool uses_onednn() const { return uses_onednn_; }

 private:
  static Result<std::vector<PackedMatrix>> reserve_in(const MatmulSpec& spec, int64_t count, MatrixMemory* memory);

  MatmulSpec spec_;
  PanelLayout layout_;
  std::vector<KSegment> segments_;
  bool uses_onednn_ = false;
  // Shared by the matrices of one reserve_many or MatrixMemory; the pointers are into it.
  std::shared_ptr<tensor::Buffer> storage_;
  std::byte* data_ = nullptr;
  float* channel_scales_ = nullptr;
  int32_t* quant_bias_ = nullptr;
  StaticQuant static_quant_;
  int64_t first_bad_block_ = kNoBadBlock;  // row * blocks of a row + block; packing threads lower it

  static constexpr int64_t kNoBadBlock = INT64_MAX;
};

// Rows of activations in one ActivationFormat, quantised once and used by every matmul that reads them.
class ActivationBuffer {
 public:
  ActivationBuffer() = default;
  // Room for `max_rows` rows of up to `max_features` inputs in any format. kInvalidArgument for sizes below 1.
  static Result<ActivationBuffer> allocate(int64_t max_rows, int64_t max_features);

  // The same over memory that ranks share: bytes() of it, aligned to 64. Each rank has a buffer of its own over it, and
  // they quantise parts of the same rows.
  static size_t bytes(int64_t max_rows, int64_t max_features);
  static Result<ActivationBuffer> over(std::shared_ptr<tensor::Buffer> memory, int64_t max_rows, int64_t max_features);

  // x: [rows, features] fp32, row stride `x_stride` elements. Threads split over rows. int8 formats need a multiple of
  // 32 (256) features. A group whose maximum is below 2^-120 becomes all zero with scale 0; one that holds a NaN or an
  // infinity becomes zeros with scale NaN, so that every output it feeds is NaN. quant: of the weight, for kInt8Static.
  void quantize(const float* x, int64_t x_stride, int64_t rows, int64_t features, ActivationFormat format,
                tensor::Isa isa, ComputePool& pool, StaticQuant quant = {});
  // Of all those rows, [begin, end) alone: the others are another's to quantise, over the same memory.
  void quantize_part(const float* x, int64_t x_stride, int64_t rows, int64_t features, ActivationFormat format,
                     tensor::Isa isa, ComputePool& pool, StaticQuant quant, int64_t begin, int64_t end);
  // x: [rows, heads, features] fp32, row stride `x_stride` elements; stored head by head: row h * rows + r.
  void quantize_heads(const float* x, int64_t x_stride, int64_t rows, int64_t heads, int64_t features,
                      ActivationFormat format, tensor::Isa isa, ComputePool& pool);

  ActivationFormat format() const { return format_; }
  int64_t rows() const { return rows_; }
  int64_t features() const { return features_; }
  int64_t row_stride_bytes() const { return row_stride_bytes_; }
  int64_t scales_per_row() const { return scales_per_row_; }
  int64_t sums_per_row() const { return sums_per_row_; }
  StaticQuant static_quant() const { return static_quant_; }
  // values: f32, bf16 or int8, [rows, features], row stride row_stride_bytes(); a row of bf16 is filled up with zeros
  // to a multiple of 2, one of kInt8Row or kInt8Static to a multiple of 8.
  const std::byte* values() const { return values_; }
  // int8 formats: [rows, scales_per_row] fp32 scales, and the int32 sum of each group of 32 quantised inputs
  // ([rows, features / 32]), which formats with a minimum need. kInt8Row: a scale and a sum a row; kInt8Static too, and
  // the scale is 1 or, where the row holds a NaN or an infinity, NaN.
  const float* scales() const { return scales_; }
  const int32_t* group_sums() const { return sums_; }
  // kInt8Group32: scale times sum of each group, [rows, features / 32].
  const float* scaled_sums() const { return scaled_sums_; }
  // kInt8Group256: [rows, features / 256, kShortSums]: the sums of the 8 runs of 32, then those of the 16 runs of 16.
  static constexpr int kShortSums = 24;
  const int16_t* short_sums() const { return short_sums_; }

 private:
  void prepare(int64_t rows, int64_t features, ActivationFormat format, StaticQuant quant);
  void convert(int64_t row, const float* x, tensor::Isa isa);

  ActivationFormat format_ = ActivationFormat::kF32;
  StaticQuant static_quant_;
  int64_t rows_ = 0, features_ = 0, row_stride_bytes_ = 0, scales_per_row_ = 0, sums_per_row_ = 0;
  int64_t max_rows_ = 0, max_features_ = 0;
  std::shared_ptr<tensor::Buffer> memory_;
  // Into it.
  std::byte* values_ = nullptr;
  float* scales_ = nullptr;
  int32_t* sums_ = nullptr;
  float* scaled_sums_ = nullptr;
  int16_t* short_sums_ = nullptr;
};

// y[r, n] = sum_k x[r, k] W[n, k] (+ bias[n] added last, if bias is not null).
// y: [rows, y_stride] fp32; x.format() must be activation_format(w.spec().dtype). Threads split over n.
void matmul(const PackedMatrix& w, const ActivationBuffer& x, const float* bias, float* y, int64_t y_stride,
            ComputePool& pool);

// Several matrices of one shape and format, each over its own consecutive rows of x and y: experts over sorted tokens.
// A row has the bits that `matmul` of it alone would give. All groups share one pass over the threads, cut so that
// threads get equal work however rows are spread. Rows of y that are in no group stay as they are. Each thread walks
// the list, so give it only experts that have rows. int8_static: all of one StaticQuant, that of x.
struct MatmulGroup {
  const PackedMatrix* w = nullptr;
  int64_t row_begin = 0;
  int64_t row_count = 0;
};
// y: [x.rows(), y_stride].
void matmul_groups(std::span<const MatmulGroup> groups, const ActivationBuffer& x, float* y, int64_t y_stride,
                   ComputePool& pool);

// One small matrix per head: y[r, h, :] = W[h] x[r, h, :] (absorbed MLA). All of one shape and format, not int8_static.
// x: [rows, heads, K] fp32, rows x_stride elements apart; y: [rows, heads, N], rows y_stride apart; a row's heads are
// dense. scratch: allocated for at least rows * heads rows of K. A head of a row has the bits of `matmul`.
void matmul_heads(std::span<const PackedMatrix> w, const float* x, int64_t x_stride, int64_t rows, float* y,
                  int64_t y_stride, ActivationBuffer& scratch, ComputePool& pool);

// Row `index` of W as fp32 [K]: the embedding look-up of a tied or quantised embedding table, from packed form.
void unpack_row(const PackedMatrix& w, int64_t index, float* out);

}  // namespace baton::kernels
