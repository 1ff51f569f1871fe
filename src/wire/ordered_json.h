// JSON of a peer whose members keep their order, in time and memory bounded by its length.
//
// nlohmann's own parser looks every member of an ordered object up from its start: a body of 80 000 members (800 KB)
// takes it 25 seconds. Here a repeated key is found through an index.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/status.h"

namespace baton::wire {

// Of one text: a member of an object counts as 16 values, which is what it takes.
inline constexpr uint64_t kJsonValuesMax = uint64_t{16} << 20;

// A repeated key keeps its first place and takes the last value, as with nlohmann's parser. kInvalidArgument with the
// place for what isn't JSON, and for more than `depth_max` levels; kOutOfRange for more values than are read.
Result<nlohmann::ordered_json> parse_ordered_json(std::string_view text, int depth_max);

}  // namespace baton::wire
