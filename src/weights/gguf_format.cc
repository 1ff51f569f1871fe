#include "weights/gguf_format.h"

#include <array>

#include "base/check.h"

namespace baton::weights {
namespace {

using tensor::DType;

struct TypeRow {
  uint32_t id;
  std::string_view name;
  std::optional<DType> dtype;
};

// enum ggml_type of ggml.h. Ids that were removed from ggml (4, 5, 31-33, 36-38) are absent.
constexpr std::array<TypeRow, 34> kTypes{{
    {0, "F32", DType::kF32},      {1, "F16", DType::kF16},       {2, "Q4_0", DType::kQ4_0},
    {3, "Q4_1", DType::kQ4_1},    {6, "Q5_0", DType::kQ5_0},     {7, "Q5_1", DType::kQ5_1},
    {8, "Q8_0", DType::kQ8_0},    {9, "Q8_1", std::nullopt},     {10, "Q2_K", std::nullopt},
    {11, "Q3_K", std::nullopt},   {12, "Q4_K", DType::kQ4_K},    {13, "Q5_K", DType::kQ5_K},
    {14, "Q6_K", DType::kQ6_K},   {15, "Q8_K", std::nullopt},    {16, "IQ2_XXS", std::nullopt},
    {17, "IQ2_XS", std::nullopt}, {18, "IQ3_XXS", std::nullopt}, {19, "IQ1_S", std::nullopt},
    {20, "IQ4_NL", std::nullopt}, {21, "IQ3_S", std::nullopt},   {22, "IQ2_S", std::nullopt},
    {23, "IQ4_XS", std::nullopt}, {24, "I8", DType::kI8},        {25, "I16", std::nullopt},
    {26, "I32", DType::kI32},     {27, "I64", DType::kI64},      {28, "F64", std::nullopt},
    {29, "IQ1_M", std::nullopt},  {30, "BF16", DType::kBF16},    {34, "TQ1_0", std::nullopt},
    {35, "TQ2_0", std::nullopt},  {39, "MXFP4", DType::kMxfp4},  {40, "NVFP4", std::nullopt},
    {41, "Q1_0", std::nullopt},
}};

}  // namespace

uint64_t gguf_value_bytes_min(GgufValueType type) {
  switch (type) {
    case GgufValueType::kUint8:
    case GgufValueType::kInt8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kUint16:
    case GgufValueType::kInt16:
      return 2;
    case GgufValueType::kUint32:
    case GgufValueType::kInt32:
    case GgufValueType::kFloat32:
      return 4;
    case GgufValueType::kString:  // its length
    case GgufValueType::kUint64:
    case GgufValueType::kInt64:
    case GgufValueType::kFloat64:
      return 8;
    case GgufValueType::kArray:
      return 12;  // its type and length
  }
  return 1;
}

GgmlType ggml_type(uint32_t id) {
  for (const auto& row : kTypes) {
    if (row.id == id) return {row.name, row.dtype};
  }
  return {};
}

uint32_t ggml_type_id(DType dtype) {
  for (const auto& row : kTypes) {
    if (row.dtype == dtype) return row.id;
  }
  BATON_CHECK(false, "no ggml type for {}", tensor::dtype_name(dtype));
}

}  // namespace baton::weights
