#include "models/weight_loader.h"

#include <cstring>
#include <numeric>

#include "models/tensor_table.h"
#include "tensor/float_convert.h"

namespace baton::models {
namespace {

using kernels::ActivationFormat;
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

}  // namespace

WeightLoader::WeightLoader(const weights::Checkpoint& checkpoint, const LoadOptions& options, ComputePool& pool)
    : checkpoint_(checkpoint), options_(options), pool_(pool) {
  for (const auto& [name, entry] : checkpoint.tensors()) bytes_total_ += entry.bytes;
}

Result<const weights::TensorEntry*> WeightLoader::find(const std::string& name) const {
  const auto it = checkpoint_.tensors().find(name);
  if (it == checkpoint_.tensors().end()) {
    return fail(Code::kDataLoss, "{}: tensor {} is missing", checkpoint_.path(), name);
  }
  return &it->second;
}

Result<kernels::PackedMatrix> WeightLoader::matrix(const std::string& name) {
  return pack(name, {.k_order = kernels::KOrder::kSequential});
}

Result<kernels::PackedMatrix> WeightLoader::tree_matrix(const std::string& name, int64_t unit) {
  return pack(name, {.k_order = kernels::KOrder::kTree, .tree_unit = unit});
}

Result<kernels::PackedMatrix> WeightLoader::pack(const std::string& name, kernels::MatmulSpec spec) {
  BATON_TRY_ASSIGN(const weights::TensorEntry* tensor, find(name));
  if (tensor->shape.size() != 2 || !tensor::is_gguf_weight(tensor->dtype)) {
    return fail(Code::kDataLoss, "{}: tensor {} ({} {}) is not a weight matrix in a format this version multiplies",
                checkpoint_.path(), name, tensor::dtype_name(tensor->dtype), shape_text(tensor->shape));
  }
  spec.out_features = tensor->shape[0];
  spec.in_features = tensor->shape[1];
  spec.dtype = tensor->dtype;
  spec.isa = options_.isa;
  spec.allow_onednn = options_.allow_onednn;
  if (spec.k_order == kernels::KOrder::kTree) {
    spec.tree_unit = tree_unit(spec.dtype, spec.tree_unit, spec.in_features);
  }
  auto packed = kernels::PackedMatrix::reserve(spec);
  if (!packed) return fail(packed.error().with_context(fmt::format("{}: tensor {}", checkpoint_.path(), name)));
  const int64_t row_bytes = tensor::dtype_bytes(spec.dtype, spec.in_features);
  pool_.parallel_for(spec.out_features, kernels::PackedMatrix::kPanelRows, [&](int64_t begin, int64_t end) {
    packed->pack_rows(begin, end - begin, tensor->data + begin * row_bytes);
  });
  if (const auto sound = packed->finish(); !sound) {
    return fail(sound.error().with_context(fmt::format("{}: tensor {}", checkpoint_.path(), name)));
  }
  bytes_held_ += static_cast<int64_t>(packed->bytes());
  finished(*tensor);
  return packed;
}

Result<std::vector<float>> WeightLoader::vector(const std::string& name) {
  BATON_TRY_ASSIGN(const weights::TensorEntry* tensor, find(name));
  const DType dtype = tensor->dtype;
  if (tensor->shape.size() != 1 || (dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16)) {
    return fail(Code::kDataLoss, "{}: tensor {} ({} {}) must be a vector of f32, f16 or bf16", checkpoint_.path(), name,
                tensor::dtype_name(dtype), shape_text(tensor->shape));
  }
  std::vector<float> values(tensor->shape[0]);
  for (size_t i = 0; i < values.size(); ++i) values[i] = to_float(tensor->data, dtype, static_cast<int64_t>(i));
  bytes_held_ += static_cast<int64_t>(values.size() * sizeof(float));
  finished(*tensor);
  return values;
}

void WeightLoader::finished(const weights::TensorEntry& tensor) {
  checkpoint_.release(tensor);
  bytes_done_ += tensor.bytes;
  if (options_.progress) options_.progress(bytes_done_, bytes_total_);
}

}  // namespace baton::models
