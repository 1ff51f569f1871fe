#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>

namespace baton {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// The process's one logger. Leaked on purpose: threads may log while statics are destroyed.
spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    auto* made = new spdlog::logger("baton", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%L %m-%d %H:%M:%S.%e %v");
    made->set_level(spdlog::level::info);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }

bool set_log_level(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  if (upper == "DEBUG")
    set_log_level(LogLevel::kDebug);
  else if (upper == "INFO")
    set_log_level(LogLevel::kInfo);
  else if (upper == "WARNING" || upper == "WARN")
    set_log_level(LogLevel::kWarning);
  else if (upper == "ERROR" || upper == "CRITICAL")
    set_log_level(LogLevel::kError);
  else
    return false;
  return true;
}

void set_log_name(std::string name) { logger().set_pattern("%L %m-%d %H:%M:%S.%e [" + name + "] %v"); }

bool log_enabled(LogLevel level) { return logger().should_log(to_spdlog(level)); }

void log_line(LogLevel level, std::string_view message) {
  // Whatever a message quotes from outside, it stays on its line.
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(message.begin(), message.end(), is_control)) {
    std::string escaped;
    for (const char c : message) {
      if (is_control(c)) escaped += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      else escaped += c;
    }
    logger().log(to_spdlog(level), spdlog::string_view_t(escaped.data(), escaped.size()));
    return;
  }
  logger().log(to_spdlog(level), spdlog::string_view_t(message.data(), message.size()));
}

std::string log_quoted(std::string_view text) {
  constexpr size_t kLongest = 200;
  std::string quoted = "\"";
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\x{:02x}", byte);
    } else {
      quoted += c;
    }
  }
  quoted += text.size() > kLongest ? "...\"" : "\"";
  return quoted;
}

}  // namespace baton
