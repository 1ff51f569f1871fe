// BATON_CHECK: an invariant of our own. A failure logs where and aborts; never on user or network input.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace baton {

[[noreturn]] void check_failed(std::string_view file, int line, std::string_view condition, std::string_view message);

}  // namespace baton

// BATON_CHECK(free_count >= 0);  BATON_CHECK(a == b, "a={} b={}", a, b);
#define BATON_CHECK(condition, ...)                                                         \
  do {                                                                                      \
    if (!(condition)) [[unlikely]]                                                          \
      ::baton::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
