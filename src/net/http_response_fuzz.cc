// Any bytes as an answer, cut at any place: no crash, bounded output, the same body for every cut.
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "net/http_parse.h"

using namespace baton::net;

namespace {

std::optional<std::string> parse(std::string_view bytes, size_t step) {
  HeadScanner scanner({.max_bytes = 4096, .max_count = 32});
  Parsed<size_t> size = 0;
  for (size_t seen = 0; seen < bytes.size() && size && *size == 0;) {
    seen = std::min(bytes.size(), seen + step);
    size = scanner.scan(bytes.substr(0, seen));
  }
  if (!size || *size == 0) return std::nullopt;
  const auto head = parse_response_head(bytes.substr(0, *size), false);
  if (!head) return std::nullopt;
  BodyDecoder decoder(head->framing, 1 << 16);
  std::string body;
  for (auto rest = bytes.substr(*size); !decoder.done() && !rest.empty();) {
    const auto used = decoder.feed(rest.substr(0, step), body);
    if (!used) return std::nullopt;
    rest.remove_prefix(*used);
  }
  if (body.size() > (1 << 16)) std::abort();
  if (!decoder.finish()) return std::nullopt;
  return body;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto whole = parse(bytes, size + 1);
  for (size_t step : {size_t{1}, size_t{3}, size / 2 + 1})
    if (parse(bytes, step) != whole) std::abort();
  return 0;
}
