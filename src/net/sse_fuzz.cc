// Any bytes, cut at any place, give the same events, and what the reader holds stays bounded.
#include <cstdint>
#include <cstdlib>

#include "net/sse.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  baton::net::SseReader whole(1 << 20);
  const auto expected = whole.feed(bytes);
  for (size_t step : {size_t{1}, size_t{2}, size / 2 + 1}) {
    baton::net::SseReader reader(1 << 20);
    std::vector<std::string> events;
    for (size_t at = 0; at < size; at += step)
      for (auto& event : reader.feed(bytes.substr(at, step))) events.push_back(std::move(event));
    if (events != expected) std::abort();
  }
  baton::net::SseReader small(16);
  for (size_t at = 0; at < size; at += 8) small.feed(bytes.substr(at, 8));
  return 0;
}
