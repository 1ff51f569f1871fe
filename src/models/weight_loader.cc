#include "models/weight_loader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "models/tensor_table.h"
#include "tensor/float_convert.h"
#include "weights/dequantize.h"
#include "weights/quantise.h"

namespace baton::models {
namespace {

using kernels::ActivationFormat;
using kernels::PackedMatrix;
using tensor::DType;

int64_t activation_group(DType dtype) {
  switch (kernels::activation_format(dtype)) {
    case ActivationFormat::kInt8Group32:
      return 32;
    case ActivationFormat::kInt8Group256:
      return 256;
    case ActivationFormat::kF32:
    case ActivationFormat::kBF16:
    case ActivationFormat::kInt8Row:
    case ActivationFormat::kInt8Static:
      break;
  }
  return 1;
}

// Inputs per unit of the canonical tree (rule 3): lcm of the unit asked for and the format's groups, 32 at least where
// nothing sets a grain. A unit that doesn't divide K falls back to what the format needs.
int64_t tree_unit(DType dtype, int64_t unit, int64_t in_features) {
  const int64_t groups = std::lcm<int64_t>(tensor::dtype_info(dtype).block_elements, activation_group(dtype));
  const int64_t wanted = std::lcm(unit, groups);
  const int64_t grain = wanted == 1 ? 32 : wanted;
  return in_features % grain == 0 ? grain : groups;
}

float to_float(const std::byte* data, DType dtype, int64_t index) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, data + index * 4, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, data + index * 2, 2);
  return dtype == DType::kF16 ? tensor::f16_to_float(half) : tensor::bf16_to_float(half);
}

// A number that is none would pass unseen where results only choose: a router's or an indexer's NaN loses every
// comparison, and the answer is wrong without a sign.
// first: the element that values begin with.
Result<void> check_finite(std::span<const float> values, std::string_view file, std::string_view tensor,
                          int64_t first = 0) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return fail(Code::kDataLoss, "{}: tensor {}: element {} is {}; every element must be finite", file, tensor,
                first + static_cast<int64_t>(i), values[i]);
  }
  return {};
}

Result<void> check_range(const weights::Checkpoint& checkpoint, const weights::MatrixSource& source, int64_t begin,
                         int64_t count) {
  if (begin >= 0 && count > 0 && begin + count <= source.rows) return {};
  return fail(Code::kOutOfRange, "{}: tensor {} has {} rows, not rows {} to {}",
              checkpoint.file_path(*source.parts.front()), source.name, source.rows, begin, begin + count);
}

}  // namespace

WeightLoader::WeightLoader(const weights::Checkpoint& checkpoint, const LoadOptions& options, ComputePool& pool)
    : checkpoint_(checkpoint), options_(options), pool_(pool) {
  for (const auto& [name, entry] : checkpoint.tensors()) bytes_total_ += entry.bytes;
}

Result<const weights::WeightFormats*> WeightLoader::formats() {
  if (!formats_) {
    BATON_TRY_ASSIGN(auto opened, weights::WeightFormats::open(checkpoint_, options_.quantization));
    formats_.emplace(std::move(opened));
  }
  return &*formats_;
}

Result<weights::MatrixSource> WeightLoader::source(const std::string& name, weights::Values values) {
  BATON_TRY_ASSIGN(const weights::WeightFormats* known, formats());
  return known->find(name, values);
}

Result<PackedMatrix> WeightLoader::matrix(const std::string& name) {
  return pack(name, {}, {.k_order = kernels::KOrder::kSequential});
}

Result<PackedMatrix> WeightLoader::tree_matrix(const std::string& name, int64_t unit) {
  return pack(name, {}, {.k_order = kernels::KOrder::kTree, .tree_unit = unit});
}

Result<PackedMatrix> WeightLoader::matrix_rows(const std::string& name, int64_t begin, int64_t count) {
  return pack(name, {begin, count}, {.k_order = kernels::KOrder::kSequential});
}

Result<PackedMatrix> WeightLoader::tree_matrix_rows(const std::string& name, int64_t unit, int64_t begin,
                                                    int64_t count) {
  return pack(name, {begin, count}, {.k_order = kernels::KOrder::kTree, .tree_unit = unit});
}

Result<std::pair<int64_t, int64_t>> WeightLoader::matrix_shape(const std::string& name) {
  BATON_TRY_ASSIGN(const auto matrix, source(name, weights::Values::kSkip));
  return std::pair(matrix.rows, matrix.columns);
}

kernels::MatmulSpec WeightLoader::spec_of(const weights::MatrixSource& from, int64_t rows,
                                          kernels::MatmulSpec spec) const {
  spec.out_features = rows;
  spec.in_features = from.columns;
  spec.dtype = from.dtype;
  spec.isa = options_.isa;
  spec.allow_onednn = options_.allow_onednn;
  if (spec.k_order == kernels::KOrder::kTree) {
    spec.tree_unit = tree_unit(spec.dtype, spec.tree_unit, spec.in_features);
  }
  return spec;
}

std::unexpected<Status> WeightLoader::in_context(const weights::MatrixSource& from, const Status& status) const {
  return fail(status.with_context(fmt::format("{}: tensor {}{}{}", checkpoint_.file_path(*from.parts.front()),
                                              from.name, from.scale_name.empty() ? "" : " with ", from.scale_name)));
}

Result<PackedMatrix> WeightLoader::pack(const std::string& name, Rows rows, kernels::MatmulSpec spec) {
  BATON_TRY_ASSIGN(const weights::MatrixSource from, source(name, weights::Values::kRead));
  const int64_t count = rows.count.value_or(from.rows);
  if (count == 0) {
    const auto quant = from.static_input.value_or(weights::StaticInput{});
    return PackedMatrix::none(spec_of(from, 0, spec),
                              {.input_scale = quant.input_scale, .input_offset = quant.input_offset});
  }
  BATON_TRY(check_range(checkpoint_, from, rows.begin, count));
  auto packed = PackedMatrix::reserve(spec_of(from, count, spec), memory_);
  if (!packed) return in_context(from, packed.error());
  BATON_TRY(fill(from, rows.begin, *packed));
  return packed;
}

Result<void> WeightLoader::fill(const weights::MatrixSource& from, int64_t begin, PackedMatrix& packed) {
  pack_rows(from, begin, packed);
  if (const auto sound = packed.finish(); !sound) return in_context(from, sound.error());
  bytes_held_ += static_cast<int64_t>(packed.bytes());
  finished(from, begin, packed.spec().out_features);
  return {};
}

Result<std::vector<PackedMatrix>> WeightLoader::matrices(std::span<const MatrixPart> parts) {
  std::vector<PackedMatrix> all;
  weights::MatrixSource first;
  for (size_t i = 0; i < parts.size(); ++i) {
    BATON_TRY_ASSIGN(weights::MatrixSource from, source(parts[i].name, weights::Values::kRead));
    const int64_t rows = parts[i].count.value_or(from.rows);
    BATON_TRY(check_range(checkpoint_, from, parts[i].begin, rows));
    if (i == 0) {
      first = from;
      const auto spec = spec_of(from, rows, {.k_order = kernels::KOrder::kSequential});
      auto reserved = PackedMatrix::reserve_many(spec, std::ssize(parts));
      if (!reserved) return in_context(from, reserved.error());
      all = std::move(*reserved);
    } else if (from.dtype != first.dtype || rows != all[0].spec().out_features || from.columns != first.columns) {
      return in_context(
          from, Status(Code::kDataLoss, fmt::format("is {} [{}, {}], but {} is {} [{}, {}]: experts must be alike",
                                                    tensor::dtype_name(from.dtype), from.rows, from.columns, first.name,
                                                    tensor::dtype_name(first.dtype), first.rows, first.columns)));
    }
    BATON_TRY(fill(from, parts[i].begin, all[i]));
  }
  return all;
}

void WeightLoader::pack_rows(const weights::MatrixSource& from, int64_t begin, PackedMatrix& packed) {
  const int64_t count = packed.spec().out_features;
  const auto first = static_cast<size_t>(begin);
  if (!from.channel_scales.empty()) {
    packed.set_channel_scales(0, std::span(from.channel_scales).subspan(first, static_cast<size_t>(count)));
  }
  if (from.static_input) {
    packed.set_static({.input_scale = from.static_input->input_scale, .input_offset = from.static_input->input_offset},
                      std::span(from.static_input->quant_bias).subspan(first, static_cast<size_t>(count)));
  }
  pool_.parallel_for(count, PackedMatrix::kPanelRows, [&](int64_t range_begin, int64_t range_end) {
    if (const std::byte* stored = from.stored_rows(begin + range_begin)) {
      packed.pack_rows(range_begin, range_end - range_begin, stored);
      return;
    }
    std::vector<std::byte> panel(static_cast<size_t>(PackedMatrix::kPanelRows * from.row_bytes()));
    for (int64_t row = range_begin; row < range_end; row += PackedMatrix::kPanelRows) {
      const int64_t now = std::min(PackedMatrix::kPanelRows, range_end - row);
      from.read_rows(begin + row, now, panel.data());
      packed.pack_rows(row, now, panel.data());
    }
  });
}

Result<std::vector<float>> WeightLoader::dense_rows(const std::string& name, int64_t begin, int64_t count) {
  BATON_TRY_ASSIGN(const weights::MatrixSource from, source(name, weights::Values::kRead));
  BATON_TRY(check_range(checkpoint_, from, begin, count));
  std::vector<float> values(static_cast<size_t>(count * from.columns));
  if (const auto made = from.dequantize_rows(begin, count, values.data()); !made) {
    return fail(made.error().with_context(checkpoint_.file_path(*from.parts.front())));
  }
  BATON_TRY(check_finite(values, checkpoint_.file_path(*from.parts.front()), from.name, begin * from.columns));
  finished(from, begin, count);
  return values;
}

Result<PackedMatrix> WeightLoader::float_matrix_rows(const std::string& name, int64_t begin, int64_t count) {
  if (count == 0) return PackedMatrix::none({.dtype = DType::kF32, .isa = options_.isa}, {});
  BATON_TRY_ASSIGN(const auto shape, matrix_shape(name));
  BATON_TRY_ASSIGN(const auto rows, dense_rows(name, begin, count));
  return pack_floats(name, rows, count, shape.second, DType::kF32);
}

Result<PackedMatrix> WeightLoader::finite_matrix_rows(const std::string& name, int64_t begin, int64_t rows) {
  if (rows == 0) return matrix_rows(name, begin, 0);
  BATON_TRY_ASSIGN(const weights::MatrixSource from, source(name, weights::Values::kRead));
  constexpr int64_t kRowsAtOnce = 256;
  BATON_TRY(check_range(checkpoint_, from, begin, rows));
  std::vector<float> values(static_cast<size_t>(std::min(kRowsAtOnce, rows) * from.columns));
  for (int64_t row = begin; row < begin + rows; row += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, begin + rows - row);
    const std::string& file = checkpoint_.file_path(*from.parts.front());
    if (const auto made = from.dequantize_rows(row, count, values.data()); !made) {
      return fail(made.error().with_context(file));
    }
    BATON_TRY(check_finite(std::span(values).first(static_cast<size_t>(count * from.columns)), file, from.name,
                           row * from.columns));
  }
  return matrix_rows(name, begin, rows);
}

Result<DType> WeightLoader::dense_dtype(const std::string& name) {
  BATON_TRY_ASSIGN(const weights::MatrixSource from, source(name, weights::Values::kSkip));
  return from.dtype == DType::kF32 ? DType::kF32 : DType::kBF16;
}

Result<PackedMatrix> WeightLoader::pack_floats(const std::string& name, std::span<const float> values,
                                               int64_t out_features, int64_t in_features, DType dtype) {
  BATON_TRY_ASSIGN(auto packed, reserve_floats(name, 1, out_features, in_features, dtype));
  BATON_TRY(fill_floats(values, packed.front()));
  return std::move(packed.front());
}

Result<std::vector<PackedMatrix>> WeightLoader::reserve_floats(const std::string& name, int64_t count,
                                                               int64_t out_features, int64_t in_features, DType dtype) {
  auto packed = PackedMatrix::reserve_many({.out_features = out_features,
                                            .in_features = in_features,
                                            .dtype = dtype,
                                            .isa = options_.isa,
                                            .allow_onednn = options_.allow_onednn},
                                           count);
  if (!packed) return fail(packed.error().with_context(fmt::format("{}: tensor {}", checkpoint_.path(), name)));
  return packed;
}

Result<void> WeightLoader::fill_floats(std::span<const float> values, PackedMatrix& packed) {
  const auto& spec = packed.spec();
  const int64_t row_bytes = tensor::dtype_bytes(spec.dtype, spec.in_features);
  std::vector<std::byte> rows(static_cast<size_t>(spec.out_features * row_bytes));
  for (int64_t i = 0; i < spec.out_features; ++i) {
    weights::quantise_row(spec.dtype, values.data() + i * spec.in_features, spec.in_features,
                          rows.data() + i * row_bytes);
  }
  packed.pack_rows(0, spec.out_features, rows.data());
  BATON_TRY(packed.finish());
  bytes_held_ += static_cast<int64_t>(packed.bytes());
  return {};
}

Result<std::vector<float>> WeightLoader::vector(const std::string& name) {
  const auto it = checkpoint_.tensors().find(name);
  if (it == checkpoint_.tensors().end()) {
    return fail(Code::kDataLoss, "{}: tensor {} is missing", checkpoint_.path(), name);
  }
  const weights::TensorEntry& tensor = it->second;
  const DType dtype = tensor.dtype;
  if (dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16) {
    return fail(Code::kDataLoss, "{}: tensor {} ({} {}) must be of f32, f16 or bf16", checkpoint_.file_path(tensor),
                name, tensor::dtype_name(dtype), shape_text(tensor.shape));
  }
  std::vector<float> values(static_cast<size_t>(tensor.bytes / tensor::dtype_info(dtype).block_bytes));
  for (size_t i = 0; i < values.size(); ++i) values[i] = to_float(tensor.data, dtype, static_cast<int64_t>(i));
  BATON_TRY(check_finite(values, checkpoint_.file_path(tensor), name));
  bytes_held_ += static_cast<int64_t>(values.size() * sizeof(float));
  checkpoint_.release(tensor);
  finished(tensor.bytes);
  return values;
}

// Rows of one matrix may be asked for piece by piece: each counts for its share.
void WeightLoader::finished(const weights::MatrixSource& from, int64_t begin, int64_t count) {
  int64_t bytes = 0;
  for (const weights::TensorEntry* part : from.parts) {
    bytes += part->bytes * (begin + count) / from.rows - part->bytes * begin / from.rows;
    weights::TensorEntry piece = *part;
    if (count != from.rows) {
      piece.file_offset += part->bytes * begin / from.rows;
      piece.bytes = part->bytes * count / from.rows;
    }
    checkpoint_.release(piece);
  }
  finished(bytes);
}

void WeightLoader::finished(int64_t bytes) {
  bytes_done_ = std::min(bytes_done_ + bytes, bytes_total_);
  if (options_.progress) options_.progress(bytes_done_, bytes_total_);
}

}  // namespace baton::models
