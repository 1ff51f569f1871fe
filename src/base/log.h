// Logging: one line per event, key=value, to standard error. spdlog stays behind log.cc.
//
// Any thread may log. Nothing on the token path does.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace baton {

enum class LogLevel : int { kDebug, kInfo, kWarning, kError };

// Sets the lowest level that is written. Call at start. Until then: info.
void set_log_level(LogLevel level);
// Accepts DEBUG, INFO, WARNING, ERROR, CRITICAL in any case (vLLM's words); false for any other.
bool set_log_level(std::string_view name);
// Put before each message, such as "prefill" when several processes share a console.
void set_log_name(std::string name);
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view message);

// Text from outside, safe on one log line: quotes around it, control characters and quotes escaped, at most 200 bytes.
std::string log_quoted(std::string_view text);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kDebug, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kWarning, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kError, format, std::forward<Args>(args)...);
}

}  // namespace baton
