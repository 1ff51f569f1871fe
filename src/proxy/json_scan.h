// Looks through JSON text without making values of it: where each member stands, and that all of it is well formed.
// What a proxy only passes on is then copied as it came. Pure, any thread.
//
// As strict as nlohmann's parser (grammar, UTF-8, surrogates). About 0.2 us for a chunk of a stream, and 0.2 ms for a
// prompt of 1 MB, eight bytes at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace baton::proxy {

struct JsonMember {
  std::string_view key;    // without its quotes; no escapes in it
  std::string_view value;  // as it stands
  double text_bytes = 0;   // an estimate of what it says: see JsonScan
};

// Weights of values by which a prompt's length is estimated.
inline constexpr double kImageWeight = 4096;  // about a thousand prompt tokens, however long its base64 is
inline constexpr double kTokenWeight = 4;     // bytes of text per token

// The members of `object`, in order. Nothing: it is not an object, not well formed, deeper than `depth_max`, has a key
// with an escape in it or one twice, or more members than `members_max`: what the caller then takes a parser for.
std::optional<std::vector<JsonMember>> scan_object(std::string_view object, int depth_max, size_t members_max = 64);
// The elements of `array`, likewise; at most `elements_max` of them. For text that scan_object has found good.
std::optional<std::vector<std::string_view>> scan_array(std::string_view array, size_t elements_max);

}  // namespace baton::proxy
