#include "weights/safetensors_writer.h"

#include <nlohmann/json.hpp>

#include "base/byte_codec.h"
#include "weights/output_file.h"
#include "weights/safetensors_reader.h"
#include "weights/tensor_layout.h"

namespace baton::weights {
namespace {

using nlohmann::ordered_json;

Result<void> check_source(const TensorSource& tensor) {
  if (safetensors_dtype(tensor.dtype).empty()) {
    return fail(Code::kInvalidArgument, "tensor {}: safetensors has no dtype {}", tensor.name,
                tensor::dtype_name(tensor.dtype));
  }
  BATON_TRY_ASSIGN(const auto bytes, tensor_bytes(tensor.dtype, tensor.shape));
  if (bytes != static_cast<int64_t>(tensor.data.size())) {
    return fail(Code::kInvalidArgument, "tensor {} is {} {}, which is {} bytes, not {}", tensor.name,
                tensor::dtype_name(tensor.dtype), shape_text(tensor.shape), bytes, tensor.data.size());
  }
  return {};
}

// Length and JSON text, padded with spaces to a multiple of 8 as the format's own writer does.
Result<std::vector<std::byte>> encode_header(std::span<const TensorSource> tensors,
                                             const SafetensorsMetadata& metadata) {
  ordered_json header = ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const auto& tensor : tensors) {
    BATON_TRY(check_source(tensor));
    if (header.contains(tensor.name) || tensor.name == "__metadata__") {
      return fail(Code::kInvalidArgument, "tensor {} is given twice or has a reserved name", tensor.name);
    }
    const auto end = offset + static_cast<int64_t>(tensor.data.size());
    header[tensor.name] = {{"dtype", std::string(safetensors_dtype(tensor.dtype))},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
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

Result<std::vector<std::byte>> encode_safetensors(std::span<const TensorSource> tensors,
                                                  const SafetensorsMetadata& metadata) {
  BATON_TRY_ASSIGN(auto bytes, encode_header(tensors, metadata));
  for (const auto& tensor : tensors) bytes.insert(bytes.end(), tensor.data.begin(), tensor.data.end());
  return bytes;
}

Result<void> write_safetensors(const std::string& path, std::span<const TensorSource> tensors,
                               const SafetensorsMetadata& metadata) {
  BATON_TRY_ASSIGN(const auto header, encode_header(tensors, metadata));
  BATON_TRY_ASSIGN(auto file, OutputFile::create(path));
  BATON_TRY(file.write(header));
  for (const auto& tensor : tensors) BATON_TRY(file.write(tensor.data));
  return file.commit();
}

}  // namespace baton::weights
