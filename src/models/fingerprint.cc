#include "models/fingerprint.h"

#include <algorithm>
#include <vector>

#include "base/byte_codec.h"
#include "base/hash.h"
#include "models/tensor_table.h"

namespace baton::models {
namespace {

constexpr int64_t kPieces = 64;
constexpr int64_t kPieceBytes = 64;

uint64_t sampled_hash(const weights::TensorEntry& tensor) {
  Xxh3Stream stream;
  const int64_t piece = std::min(kPieceBytes, tensor.bytes);
  for (int64_t i = 0; i < kPieces; ++i) {
    const int64_t offset = (tensor.bytes - piece) * i / (kPieces - 1);
    stream.update({tensor.data + offset, static_cast<size_t>(piece)});
  }
  return stream.digest();
}

}  // namespace

std::string model_fingerprint(const weights::Checkpoint& checkpoint, std::string_view configuration,
                              std::span<const float> rope_table) {
  std::string text(configuration);
  text += fmt::format("\nrope {:016x}\n", xxh3_64(std::as_bytes(rope_table)));
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    text += fmt::format("{} {} {} {:016x}\n", name, tensor::dtype_name(tensor.dtype), shape_text(tensor.shape),
                        sampled_hash(tensor));
  }
  return to_hex(sha256(std::as_bytes(std::span(text.data(), text.size()))));
}

}  // namespace baton::models
