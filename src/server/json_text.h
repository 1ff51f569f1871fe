// JSON out: compact text that never throws (a broken UTF-8 sequence becomes U+FFFD).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace baton::server {

template <typename Json>
std::string to_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace baton::server
