#include "weights/safetensors_writer.h"

#include "weights/output_file.h"
#include "weights/safetensors_reader.h"
#include "weights/tensor_layout.h"

namespace baton::weights {
namespace {

Result<SafetensorsLayout> layout_of(std::span<const TensorSource> tensors, const SafetensorsMetadata& metadata) {
  std::vector<TensorDecl> decls;
  decls.reserve(tensors.size());
  for (const auto& tensor : tensors) decls.push_back({tensor.name, tensor.dtype, tensor.shape});
  BATON_TRY_ASSIGN(auto layout, layout_safetensors(decls, metadata));
  for (const auto& tensor : tensors) {
    BATON_TRY_ASSIGN(const auto bytes, tensor_bytes(tensor.dtype, tensor.shape));
    if (bytes != static_cast<int64_t>(tensor.data.size())) {
      return fail(Code::kInvalidArgument, "tensor {} is {} {}, which is {} bytes, not {}", tensor.name,
                  tensor::dtype_name(tensor.dtype), shape_text(tensor.shape), bytes, tensor.data.size());
    }
  }
  return layout;
}

}  // namespace

Result<std::vector<std::byte>> encode_safetensors(std::span<const TensorSource> tensors,
                                                  const SafetensorsMetadata& metadata) {
  BATON_TRY_ASSIGN(auto layout, layout_of(tensors, metadata));
  auto bytes = std::move(layout.header);
  for (const auto& tensor : tensors) bytes.insert(bytes.end(), tensor.data.begin(), tensor.data.end());
  return bytes;
}

Result<void> write_safetensors(const std::string& path, std::span<const TensorSource> tensors,
                               const SafetensorsMetadata& metadata) {
  BATON_TRY_ASSIGN(const auto layout, layout_of(tensors, metadata));
  BATON_TRY_ASSIGN(auto file, OutputFile::create(path));
  BATON_TRY(file.write(layout.header));
  for (const auto& tensor : tensors) BATON_TRY(file.write(tensor.data));
  return file.commit();
}

}  // namespace baton::weights
