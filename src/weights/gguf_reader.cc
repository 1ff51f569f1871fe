#include "weights/gguf_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "base/byte_codec.h"
#include "weights/gguf_format.h"
#include "weights/tensor_layout.h"

namespace baton::weights {
namespace {

using nlohmann::json;

// At least a key length, a type and one byte of value; a name length, a dimension count, one dimension, type, offset.
constexpr uint64_t kPairBytesMin = 8 + 4 + 1;
constexpr uint64_t kTensorInfoBytesMin = 8 + 4 + 8 + 4 + 8;

class Parser {
 public:
  Parser(std::span<const std::byte> file, std::string_view name)
      : file_(file), name_(name), reader_(file.first(std::min<size_t>(file.size(), kGgufHeaderBytesMax))) {}

  Result<GgufHeader> parse() {
    BATON_TRY(read_preamble());
    BATON_TRY(read_metadata());
    BATON_TRY(read_tensor_infos());
    BATON_TRY(find_data_section());
    BATON_TRY(place_tensors());
    return std::move(header_);
  }

 private:
  uint64_t position() const { return reader_.position(); }

  std::unexpected<Status> cut_short(std::string_view what) const {
    if (file_.size() > kGgufHeaderBytesMax && reader_.remaining() < kGgufKeyBytesMax) {
      return fail(Code::kOutOfRange, "{}: the header is larger than {} bytes ({})", name_, kGgufHeaderBytesMax, what);
    }
    return fail(Code::kDataLoss, "{}: cut short in {} at byte {} of {}", name_, what, position(), file_.size());
  }

  template <typename T>
  Result<T> read(std::string_view what) {
    const T value = reader_.get<T>();
    if (!reader_.ok()) return cut_short(what);
    return value;
  }

  // A string is only looked at in place; the caller copies it once its length is known to be sane.
  Result<std::string_view> read_string(std::string_view what, uint64_t bytes_max) {
    const uint64_t at = position();
    BATON_TRY_ASSIGN(const auto length, read<uint64_t>(what));
    if (length > reader_.remaining()) {
      if (length <= file_.size() - position()) return cut_short(what);
      return fail(Code::kDataLoss, "{}: {} at byte {} says {} bytes, {} remain in the file", name_, what, at, length,
                  file_.size() - position());
    }
    if (length > bytes_max) {
      return fail(Code::kOutOfRange, "{}: {} at byte {} has {} bytes, at most {} are read", name_, what, at, length,
                  bytes_max);
    }
    const auto bytes = reader_.get_bytes(length);
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  Result<void> read_preamble() {
    BATON_TRY_ASSIGN(const auto magic, read<uint32_t>("the magic number"));
    if (magic != kGgufMagic) {
      return fail(Code::kInvalidArgument, "{}: not a GGUF file: it begins with {:#010x}, not \"GGUF\"", name_, magic);
    }
    BATON_TRY_ASSIGN(header_.version, read<uint32_t>("the version"));
    if ((header_.version & 0xffffu) == 0 && header_.version != 0) {
      return fail(Code::kUnimplemented, "{}: GGUF version {} is a big-endian file; convert it to little-endian", name_,
                  std::byteswap(header_.version));
    }
    if (header_.version != 2 && header_.version != 3) {
      return fail(Code::kUnimplemented, "{}: GGUF version {}; versions 2 and 3 are read", name_, header_.version);
    }
    BATON_TRY_ASSIGN(tensor_count_, read<uint64_t>("the tensor count"));
    BATON_TRY_ASSIGN(pair_count_, read<uint64_t>("the metadata count"));
    BATON_TRY(check_count("tensors", tensor_count_, kTensorInfoBytesMin));
    BATON_TRY(check_count("metadata pairs", pair_count_, kPairBytesMin));
    if (tensor_count_ > kGgufTensorsMax || pair_count_ > kGgufPairsMax) {
      return fail(Code::kOutOfRange, "{}: {} tensors and {} metadata pairs; at most {} and {} are read", name_,
                  tensor_count_, pair_count_, kGgufTensorsMax, kGgufPairsMax);
    }
    return {};
  }

  Result<void> check_count(std::string_view what, uint64_t count, uint64_t bytes_min) const {
    if (count <= reader_.remaining() / bytes_min) return {};
    return fail(Code::kDataLoss, "{}: says {} {} of at least {} bytes each, but {} bytes remain at byte {}", name_,
                count, what, bytes_min, reader_.remaining(), position());
  }

  Result<void> read_metadata() {
    header_.metadata = json::object();
    for (uint64_t i = 0; i < pair_count_; ++i) {
      const uint64_t at = position();
      BATON_TRY_ASSIGN(const auto key_view, read_string("a metadata key", kGgufKeyBytesMax));
      const std::string key(key_view);
      if (header_.metadata.contains(key)) {
        return fail(Code::kDataLoss, "{}: metadata key {} appears again at byte {}", name_, key, at);
      }
      what_ = fmt::format("metadata key {}", key);
      BATON_TRY_ASSIGN(const auto type, read_type());
      BATON_TRY_ASSIGN(header_.metadata[key], read_value(type, 0));
    }
    return {};
  }

  Result<GgufValueType> read_type() {
    const uint64_t at = position();
    BATON_TRY_ASSIGN(const auto id, read<uint32_t>(what_));
    if (id >= kGgufValueTypes) {
      return fail(Code::kDataLoss, "{}: {} has value type {} at byte {}; types are 0 to {}", name_, what_, id, at,
                  kGgufValueTypes - 1);
    }
    return static_cast<GgufValueType>(id);
  }

  template <typename T>
  Result<json> read_number() {
    BATON_TRY_ASSIGN(const auto value, read<T>(what_));
    return json(value);
  }

  Result<json> read_value(GgufValueType type, int depth) {
    switch (type) {
      case GgufValueType::kUint8:
        return read_number<uint8_t>();
      case GgufValueType::kInt8:
        return read_number<int8_t>();
      case GgufValueType::kUint16:
        return read_number<uint16_t>();
      case GgufValueType::kInt16:
        return read_number<int16_t>();
      case GgufValueType::kUint32:
        return read_number<uint32_t>();
      case GgufValueType::kInt32:
        return read_number<int32_t>();
      case GgufValueType::kUint64:
        return read_number<uint64_t>();
      case GgufValueType::kInt64:
        return read_number<int64_t>();
      case GgufValueType::kFloat32:
        return read_number<float>();
      case GgufValueType::kFloat64:
        return read_number<double>();
      case GgufValueType::kBool:
        return read_bool();
      case GgufValueType::kString: {
        BATON_TRY_ASSIGN(const auto text, read_string(what_, kGgufHeaderBytesMax));
        return json(std::string(text));
      }
      case GgufValueType::kArray:
        return read_array(depth);
    }
    return fail(Code::kInternal, "{}: value type {} is not handled", name_, std::to_underlying(type));
  }

  Result<json> read_bool() {
    const uint64_t at = position();
    BATON_TRY_ASSIGN(const auto value, read<uint8_t>(what_));
    if (value > 1) return fail(Code::kDataLoss, "{}: {} has boolean {} at byte {}", name_, what_, value, at);
    return json(value == 1);
  }

  Result<json> read_array(int depth) {
    const uint64_t at = position();
    if (depth >= kGgufArrayDepthMax) {
      return fail(Code::kOutOfRange, "{}: {} nests arrays deeper than {} at byte {}", name_, what_, kGgufArrayDepthMax,
                  at);
    }
    BATON_TRY_ASSIGN(const auto type, read_type());
    BATON_TRY_ASSIGN(const auto count, read<uint64_t>(what_));
    BATON_TRY(check_count(fmt::format("elements of {}", what_), count, gguf_value_bytes_min(type)));
    elements_ += count;
    if (elements_ > kGgufArrayElementsMax) {
      return fail(Code::kOutOfRange, "{}: {} at byte {} brings the metadata's arrays above {} elements", name_, what_,
                  at, kGgufArrayElementsMax);
    }
    json::array_t values;
    values.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      BATON_TRY_ASSIGN(auto value, read_value(type, depth + 1));
      values.push_back(std::move(value));
    }
    return json(std::move(values));
  }

  Result<void> read_tensor_infos() {
    // Metadata may have eaten what the count was first compared with.
    BATON_TRY(check_count("tensors", tensor_count_, kTensorInfoBytesMin));
    header_.tensors.reserve(tensor_count_);
    std::unordered_set<std::string_view> names;
    for (uint64_t i = 0; i < tensor_count_; ++i) {
      const uint64_t at = position();
      BATON_TRY_ASSIGN(const auto tensor_name, read_string("a tensor name", kGgufTensorNameBytesMax));
      if (tensor_name.empty()) return fail(Code::kDataLoss, "{}: a tensor without a name at byte {}", name_, at);
      if (!names.insert(tensor_name).second) {
        return fail(Code::kDataLoss, "{}: tensor {} appears again at byte {}", name_, tensor_name, at);
      }
      BATON_TRY(read_tensor_info(tensor_name));
    }
    return {};
  }

  Result<void> read_tensor_info(std::string_view tensor_name) {
    what_ = fmt::format("tensor {}", tensor_name);
    GgufTensor tensor;
    tensor.name = tensor_name;
    BATON_TRY_ASSIGN(tensor.shape, read_shape());
    const uint64_t at = position();
    BATON_TRY_ASSIGN(const auto type_id, read<uint32_t>(what_));
    const GgmlType type = ggml_type(type_id);
    if (type.name.empty()) {
      return fail(Code::kDataLoss, "{}: {} has unknown type {} at byte {}", name_, what_, type_id, at);
    }
    if (!type.dtype) {
      return fail(Code::kUnimplemented, "{}: {} is {} (at byte {}), which this version doesn't read", name_, what_,
                  type.name, at);
    }
    tensor.dtype = *type.dtype;
    if (auto bytes = tensor_bytes(tensor.dtype, tensor.shape); bytes.has_value()) {
      tensor.bytes = *bytes;
    } else {
      return fail(bytes.error().with_context(fmt::format("{}: {} at byte {}", name_, what_, at)));
    }
    const uint64_t offset_at = position();
    BATON_TRY_ASSIGN(const auto offset, read<uint64_t>(what_));
    if (offset > file_.size()) {
      return fail(Code::kDataLoss, "{}: {} (at byte {}) begins at data byte {} of a file of {}", name_, what_,
                  offset_at, offset, file_.size());
    }
    tensor.file_offset = static_cast<int64_t>(offset);  // from the data section, until place_tensors
    header_.tensors.push_back(std::move(tensor));
    return {};
  }

  // Innermost first in the file, outermost first in the result.
  Result<std::vector<int64_t>> read_shape() {
    const uint64_t at = position();
    BATON_TRY_ASSIGN(const auto count, read<uint32_t>(what_));
    if (count < 1 || count > static_cast<uint32_t>(kGgufMaxDims)) {
      return fail(Code::kDataLoss, "{}: {} has {} dimensions at byte {}; 1 to {} are allowed", name_, what_, count, at,
                  kGgufMaxDims);
    }
    std::vector<int64_t> shape(count);
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t dim_at = position();
      BATON_TRY_ASSIGN(const auto dim, read<uint64_t>(what_));
      if (dim == 0 || dim > static_cast<uint64_t>(INT64_MAX)) {
        return fail(Code::kDataLoss, "{}: {} has dimension {} at byte {}", name_, what_, dim, dim_at);
      }
      shape[count - 1 - i] = static_cast<int64_t>(dim);
    }
    return shape;
  }

  Result<void> find_data_section() {
    header_.alignment = kGgufDefaultAlignment;
    if (const auto it = header_.metadata.find("general.alignment"); it != header_.metadata.end()) {
      const uint64_t value = it->is_number_integer() && *it > 0 ? it->get<uint64_t>() : 0;
      if (!std::has_single_bit(value) || value > (uint64_t{1} << 30)) {
        // error_handler_t::replace: a string value may hold any bytes.
        return fail(Code::kDataLoss, "{}: general.alignment is {}; it must be a power of two up to 2^30", name_,
                    it->dump(-1, ' ', false, json::error_handler_t::replace));
      }
      header_.alignment = static_cast<uint32_t>(value);
    }
    const uint64_t mask = header_.alignment - 1;
    header_.data_offset = static_cast<int64_t>((position() + mask) & ~mask);
    return {};
  }

  Result<void> place_tensors() {
    std::vector<ByteRange> ranges;
    ranges.reserve(header_.tensors.size());
    for (auto& tensor : header_.tensors) {
      if (tensor.file_offset % header_.alignment != 0) {
        return fail(Code::kDataLoss, "{}: tensor {} begins at data byte {}, which is not a multiple of {}", name_,
                    tensor.name, tensor.file_offset, header_.alignment);
      }
      tensor.file_offset += header_.data_offset;  // both at most the file's size plus 2^30
      const auto size = static_cast<int64_t>(file_.size());
      if (tensor.file_offset > size || tensor.bytes > size - tensor.file_offset) {
        return fail(Code::kDataLoss, "{}: tensor {} takes bytes {} to {} of a file of {}; the file is cut short", name_,
                    tensor.name, tensor.file_offset, static_cast<uint64_t>(tensor.file_offset) + tensor.bytes, size);
      }
      ranges.push_back({tensor.file_offset, tensor.bytes, tensor.name});
    }
    return check_disjoint(std::move(ranges), name_);
  }

  std::span<const std::byte> file_;
  std::string_view name_;
  ByteReader reader_;
  GgufHeader header_;
  uint64_t tensor_count_ = 0;
  uint64_t pair_count_ = 0;
  uint64_t elements_ = 0;
  std::string what_;  // the key or tensor being read, for messages
};

}  // namespace

Result<GgufHeader> parse_gguf(std::span<const std::byte> file, std::string_view name) {
  return Parser(file, name).parse();
}

}  // namespace baton::weights
