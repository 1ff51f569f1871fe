// Any bytes as a GGUF file: an error or a header whose tensors lie inside the bytes.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "weights/gguf_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = baton::weights::parse_gguf(bytes, "fuzz.gguf");
  if (!header.has_value()) {
    BATON_CHECK(!header.error().message().empty());
    return 0;
  }
  unsigned sum = 0;
  for (const auto& tensor : header->tensors) {
    BATON_CHECK(tensor.file_offset >= header->data_offset && tensor.bytes > 0 && !tensor.shape.empty());
    const auto place = bytes.subspan(static_cast<size_t>(tensor.file_offset), static_cast<size_t>(tensor.bytes));
    sum += static_cast<unsigned>(place.front()) + static_cast<unsigned>(place.back());
  }
  return sum == ~0u ? 1 : 0;
}
