// JSON from a file: no exception, no unbounded depth, and errors that say the file and the byte.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace baton::weights {

inline constexpr int kJsonDepthMax = 128;
// A configuration file of more bytes is refused (kOutOfRange) before it is read.
inline constexpr uint64_t kJsonFileBytesMax = uint64_t{256} << 20;

enum class DuplicateKeys : uint8_t {
  kLastWins,  // as Python's json does: configuration files
  kRefuse,    // kDataLoss: headers whose keys are names of things
};

// kDataLoss "NAME: not JSON at byte 17: ..." for anything but one JSON value (nothing may follow it but white space).
Result<nlohmann::json> parse_json(std::span<const std::byte> bytes, std::string_view name, DuplicateKeys duplicates);

// A whole file that must hold a JSON object.
Result<nlohmann::json> read_json_object(const std::string& path);

}  // namespace baton::weights
