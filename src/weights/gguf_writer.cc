#include "weights/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "weights/output_file.h"
#include "weights/tensor_layout.h"

namespace baton::weights {

GgufWriter::GgufWriter(uint32_t alignment) : alignment_(alignment) {
  BATON_CHECK(std::has_single_bit(alignment), "alignment {}", alignment);
  if (alignment != kGgufDefaultAlignment) set("general.alignment", alignment);
}

void GgufWriter::refuse(std::string message) {
  if (!mistake_) mistake_.emplace(Code::kInvalidArgument, std::move(message));
}

void GgufWriter::put_text(ByteWriter& out, std::string_view text) const {
  out.put(static_cast<uint64_t>(text.size()));
  out.put_bytes(std::as_bytes(std::span(text)));
}

void GgufWriter::begin_pair(std::string_view key, GgufValueType type) {
  if (!keys_.emplace(key).second) refuse(fmt::format("metadata key {} is set twice", key));
  put_text(pairs_, key);
  pairs_.put(type);
}

void GgufWriter::begin_array(std::string_view key, GgufValueType type, uint64_t count) {
  begin_pair(key, GgufValueType::kArray);
  pairs_.put(type);
  pairs_.put(count);
}

void GgufWriter::set(std::string_view key, std::string_view text) {
  begin_pair(key, GgufValueType::kString);
  put_text(pairs_, text);
}

void GgufWriter::set_array(std::string_view key, std::span<const std::string> texts) {
  begin_array(key, GgufValueType::kString, texts.size());
  for (const auto& text : texts) put_text(pairs_, text);
}

void GgufWriter::add_tensor(TensorSource tensor) {
  if (!names_.emplace(tensor.name).second) refuse(fmt::format("tensor {} is added twice", tensor.name));
  if (tensor.shape.empty() || tensor.shape.size() > static_cast<size_t>(kGgufMaxDims) ||
      std::ranges::any_of(tensor.shape, [](int64_t dim) { return dim <= 0; })) {
    refuse(fmt::format("tensor {} has shape {}; 1 to {} positive dimensions are allowed", tensor.name,
                       shape_text(tensor.shape), kGgufMaxDims));
  }
  const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
  if (!bytes.has_value()) {
    refuse(fmt::format("tensor {}: {}", tensor.name, bytes.error().message()));
  } else if (*bytes != static_cast<int64_t>(tensor.data.size())) {
    refuse(fmt::format("tensor {} is {} {}, which is {} bytes, not {}", tensor.name, tensor::dtype_name(tensor.dtype),
                       shape_text(tensor.shape), *bytes, tensor.data.size()));
  }
  tensors_.push_back(std::move(tensor));
}

Result<std::vector<std::byte>> GgufWriter::encode_header() const {
  if (mistake_) return fail(*mistake_);
  ByteWriter out;
  out.put(kGgufMagic);
  out.put(kGgufVersion);
  out.put(static_cast<uint64_t>(tensors_.size()));
  out.put(static_cast<uint64_t>(keys_.size()));
  out.put_bytes(pairs_.view());
  uint64_t offset = 0;
  for (const auto& tensor : tensors_) {
    put_text(out, tensor.name);
    out.put(static_cast<uint32_t>(tensor.shape.size()));
    for (auto it = tensor.shape.rbegin(); it != tensor.shape.rend(); ++it) out.put(static_cast<uint64_t>(*it));
    out.put(ggml_type_id(tensor.dtype));
    out.put(offset);
    offset += tensor.data.size() + padding(tensor.data.size());
  }
  auto bytes = out.take();
  bytes.resize(bytes.size() + padding(bytes.size()));
  return bytes;
}

Result<std::vector<std::byte>> GgufWriter::encode() const {
  BATON_TRY_ASSIGN(auto bytes, encode_header());
  for (const auto& tensor : tensors_) {
    bytes.insert(bytes.end(), tensor.data.begin(), tensor.data.end());
    bytes.resize(bytes.size() + padding(tensor.data.size()));
  }
  return bytes;
}

Result<void> GgufWriter::write(const std::string& path) const {
  BATON_TRY_ASSIGN(const auto header, encode_header());
  BATON_TRY_ASSIGN(auto file, OutputFile::create(path));
  BATON_TRY(file.write(header));
  for (const auto& tensor : tensors_) {
    BATON_TRY(file.write(tensor.data));
    BATON_TRY(file.write_zeros(padding(tensor.data.size())));
  }
  return file.commit();
}

}  // namespace baton::weights
