// Any bytes as a safetensors file: an error or a header whose tensors lie inside the bytes.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "weights/safetensors_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = baton::weights::parse_safetensors(bytes, "fuzz.safetensors");
  if (!header.has_value()) {
    BATON_CHECK(!header.error().message().empty());
    return 0;
  }
  size_t covered = 0;
  unsigned sum = 0;
  for (const auto& tensor : header->tensors) {
    const auto place = bytes.subspan(static_cast<size_t>(tensor.file_offset), static_cast<size_t>(tensor.bytes));
    covered += place.size();
    if (!place.empty()) sum += static_cast<unsigned>(place.front()) + static_cast<unsigned>(place.back());
  }
  BATON_CHECK(covered <= size);
  return sum == ~0u ? 1 : 0;
}
