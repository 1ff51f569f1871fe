#include "weights/safetensors_layout.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/byte_codec.h"
#include "weights/safetensors_reader.h"
#include "weights/tensor_layout.h"

namespace baton::weights {
namespace {

using nlohmann::ordered_json;

// Length and JSON text, padded with spaces to a multiple of 8 as the format's own writer does.
Result<std::vector<std::byte>> encode_header(const ordered_json& header) {
  std::string text;
  try {
    text = header.dump();
  } catch (const std::exception& error) {
    return fail(Code::kInvalidArgument, "a tensor name or metadata value is not UTF-8: {}", error.what());
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  ByteWriter writer;
  writer.put(static_cast<uint64_t>(text.size()));
  writer.put_bytes(std::as_bytes(std::span(text)));
  return writer.take();
}

}  // namespace

Result<SafetensorsLayout> layout_safetensors(std::span<const TensorDecl> tensors, const SafetensorsMetadata& metadata) {
  ordered_json header = ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  SafetensorsLayout layout;
  std::set<std::string_view> names{"__metadata__"};
  int64_t offset = 0;
  for (const auto& tensor : tensors) {
    if (safetensors_dtype(tensor.dtype).empty()) {
      return fail(Code::kInvalidArgument, "tensor {}: safetensors has no dtype {}", tensor.name,
                  tensor::dtype_name(tensor.dtype));
    }
    if (!names.insert(tensor.name).second) {
      return fail(Code::kInvalidArgument, "tensor {} is given twice or has a reserved name", tensor.name);
    }
    BATON_TRY_ASSIGN(const int64_t bytes, tensor_bytes(tensor.dtype, tensor.shape));
    // push_back: ordered_json looks a key up in linear time, and names are known to differ.
    header.push_back({tensor.name,
                      {{"dtype", std::string(safetensors_dtype(tensor.dtype))},
                       {"shape", tensor.shape},
                       {"data_offsets", {offset, offset + bytes}}}});
    layout.offsets.push_back(offset);
    offset += bytes;
  }
  BATON_TRY_ASSIGN(layout.header, encode_header(header));
  const auto data_begin = static_cast<int64_t>(layout.header.size());
  for (int64_t& place : layout.offsets) place += data_begin;
  layout.file_bytes = data_begin + offset;
  return layout;
}

}  // namespace baton::weights
