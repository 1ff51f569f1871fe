#include "weights/safetensors_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "weights/json_parse.h"
#include "weights/printable.h"
#include "weights/tensor_layout.h"

namespace baton::weights {
namespace {

using nlohmann::json;
using tensor::DType;

struct DtypeRow {
  std::string_view name;
  std::optional<DType> dtype;
};

// The dtypes of the safetensors format; those without a DType are known and not read yet.
constexpr std::array<DtypeRow, 19> kDtypes{{
    {"F32", DType::kF32},      {"F16", DType::kF16},        {"BF16", DType::kBF16},    {"I8", DType::kI8},
    {"I32", DType::kI32},      {"I64", DType::kI64},        {"F64", std::nullopt},     {"F8_E4M3", DType::kF8E4M3},
    {"F8_E5M2", std::nullopt}, {"F8_E8M0", DType::kF8E8M0}, {"F6_E2M3", std::nullopt}, {"F6_E3M2", std::nullopt},
    {"F4", std::nullopt},      {"BOOL", std::nullopt},      {"U8", DType::kU8},        {"U16", std::nullopt},
    {"U32", std::nullopt},     {"U64", std::nullopt},       {"I16", std::nullopt},
}};

Result<DType> read_dtype(const json& value, std::string_view where) {
  if (!value.is_string()) return fail(Code::kDataLoss, "{} has no dtype", where);
  const auto& text = value.get_ref<const std::string&>();
  for (const auto& row : kDtypes) {
    if (row.name != text) continue;
    if (row.dtype) return *row.dtype;
    return fail(Code::kUnimplemented, "{} is {}, which this version doesn't read", where, text);
  }
  return fail(Code::kDataLoss, "{} has unknown dtype \"{}\"", where, printable(text));
}

Result<int64_t> read_int(const json& value, std::string_view where, std::string_view what) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return fail(Code::kDataLoss, "{} has {} {}, not a whole number below 2^63", where, what,
                printable(value.dump(-1, ' ', false, json::error_handler_t::replace)));
  }
  return static_cast<int64_t>(value.get<uint64_t>());
}

Result<std::vector<int64_t>> read_shape(const json& value, std::string_view where) {
  if (!value.is_array() || value.size() > kSafetensorsDimsMax) {
    return fail(Code::kDataLoss, "{} has no shape of at most {} dimensions", where, kSafetensorsDimsMax);
  }
  std::vector<int64_t> shape;
  for (const auto& dim : value) {
    BATON_TRY_ASSIGN(const auto size, read_int(dim, where, "dimension"));
    shape.push_back(size);
  }
  return shape;
}

const json& member(const json& object, const char* key) {
  static const json kNull;
  const auto it = object.find(key);
  return it == object.end() ? kNull : *it;
}

Result<SafetensorsTensor> read_tensor(const std::string& tensor_name, const json& entry, int64_t data_begin,
                                      int64_t data_bytes, std::string_view file) {
  const std::string where = fmt::format("{}: tensor {}", file, printable(tensor_name));
  if (!entry.is_object()) return fail(Code::kDataLoss, "{} is not an object in the header", where);
  SafetensorsTensor tensor;
  tensor.name = tensor_name;
  BATON_TRY_ASSIGN(tensor.dtype, read_dtype(member(entry, "dtype"), where));
  BATON_TRY_ASSIGN(tensor.shape, read_shape(member(entry, "shape"), where));
  const json& offsets = member(entry, "data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) return fail(Code::kDataLoss, "{} has no pair data_offsets", where);
  BATON_TRY_ASSIGN(const auto begin, read_int(offsets[0], where, "data offset"));
  BATON_TRY_ASSIGN(const auto end, read_int(offsets[1], where, "data offset"));
  if (begin > end || end > data_bytes) {
    return fail(Code::kDataLoss, "{} takes data bytes {} to {}, but the file holds {} (from byte {})", where, begin,
                end, data_bytes, data_begin);
  }
  auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
  if (!bytes.has_value()) return fail(bytes.error().with_context(where));
  if (*bytes != end - begin) {
    return fail(Code::kDataLoss, "{} is {} {}, which is {} bytes, but its data_offsets {} to {} span {}", where,
                tensor::dtype_name(tensor.dtype), shape_text(tensor.shape), *bytes, begin, end, end - begin);
  }
  tensor.file_offset = data_begin + begin;
  tensor.bytes = *bytes;
  return tensor;
}

Result<json> read_metadata(const json& value, std::string_view file) {
  if (!value.is_object()) return fail(Code::kDataLoss, "{}: __metadata__ is not an object", file);
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string())
      return fail(Code::kDataLoss, "{}: __metadata__ key {} is not a string", file, printable(key));
  }
  return value;
}

// The header's JSON text, within the file and the format's limit.
Result<std::span<const std::byte>> header_text(std::span<const std::byte> file, std::string_view name) {
  if (file.size() < 8) return fail(Code::kDataLoss, "{}: {} bytes are no safetensors file", name, file.size());
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  if (length > kSafetensorsHeaderBytesMax) {
    return fail(Code::kDataLoss, "{}: says a header of {} bytes (at byte 0), at most {} are allowed", name, length,
                kSafetensorsHeaderBytesMax);
  }
  if (length > file.size() - 8) {
    return fail(Code::kDataLoss, "{}: says a header of {} bytes (at byte 0), but the file has {}", name, length,
                file.size());
  }
  if (length == 0 || file[8] != std::byte{'{'}) {
    return fail(Code::kDataLoss, "{}: no JSON object begins at byte 8; not a safetensors file", name);
  }
  return file.subspan(8, length);
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file, std::string_view name) {
  BATON_TRY_ASSIGN(const auto text, header_text(file, name));
  auto root = parse_json(text, name, DuplicateKeys::kRefuse);
  if (!root.has_value()) return fail(root.error().with_context("safetensors header (from byte 8)"));

  const auto data_begin = static_cast<int64_t>(8 + text.size());
  const auto data_bytes = static_cast<int64_t>(file.size()) - data_begin;
  SafetensorsHeader header;
  header.metadata = json::object();
  std::vector<ByteRange> ranges;
  int64_t covered = 0;
  for (const auto& [key, entry] : root->items()) {
    if (key == "__metadata__") {
      BATON_TRY_ASSIGN(header.metadata, read_metadata(entry, name));
      continue;
    }
    BATON_TRY_ASSIGN(auto tensor, read_tensor(key, entry, data_begin, data_bytes, name));
    covered += tensor.bytes > data_bytes - covered ? data_bytes - covered : tensor.bytes;
    header.tensors.push_back(std::move(tensor));
  }
  for (const auto& tensor : header.tensors) ranges.push_back({tensor.file_offset, tensor.bytes, tensor.name});
  BATON_TRY(check_disjoint(std::move(ranges), name));
  if (covered != data_bytes) {
    return fail(Code::kDataLoss,
                "{}: tensors cover {} of {} data bytes; the format allows no gaps and nothing after them", name,
                covered, data_bytes);
  }
  return header;
}

std::string_view safetensors_dtype(DType dtype) {
  for (const auto& row : kDtypes) {
    if (row.dtype == dtype) return row.name;
  }
  return {};
}

}  // namespace baton::weights
