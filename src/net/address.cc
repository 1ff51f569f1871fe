// Names of peers as text, and the small helpers of stream.h that need no sockets.
#include <charconv>

#include "net/stream.h"

namespace baton::net {
namespace {

Result<int> parse_port(std::string_view text, std::string_view whole) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size() || port < 0 || port > 65535)
    return fail(Code::kInvalidArgument, "'{}': the port '{}' is not a number from 0 to 65535", whole, text);
  return port;
}

}  // namespace

TimePoint deadline_after(Duration timeout) {
  constexpr Duration kFar = std::chrono::hours(24 * 365);
  return SteadyClock().now() + std::min(std::max(timeout, Duration::zero()), kFar);
}

Result<HostPort> parse_host_port(std::string_view text, int default_port) {
  HostPort parsed{.host = std::string(text), .port = default_port};
  if (text.starts_with('[')) {
    const auto close = text.find(']');
    if (close == std::string_view::npos) return fail(Code::kInvalidArgument, "'{}': the bracket is not closed", text);
    parsed.host = text.substr(1, close - 1);
    const auto rest = text.substr(close + 1);
    if (!rest.empty() && rest.front() != ':')
      return fail(Code::kInvalidArgument, "'{}': only ':port' may follow the bracket", text);
    if (!rest.empty()) {
      BATON_TRY_ASSIGN(parsed.port, parse_port(rest.substr(1), text));
    }
  } else if (const auto colon = text.find(':'); colon != std::string_view::npos && colon == text.rfind(':')) {
    parsed.host = text.substr(0, colon);
    BATON_TRY_ASSIGN(parsed.port, parse_port(text.substr(colon + 1), text));
  }  // More than one colon and no bracket: a bare IPv6 address.
  if (parsed.host.empty()) return fail(Code::kInvalidArgument, "'{}' names no host", text);
  for (char c : parsed.host)
    if (c <= ' ' || c == 0x7f || c == '/' || c == '@')
      return fail(Code::kInvalidArgument, "'{}': the host holds a character that no host has", text);
  return parsed;
}

std::string format_host_port(std::string_view host, int port) {
  if (host.find(':') != std::string_view::npos && !host.starts_with('[')) return fmt::format("[{}]:{}", host, port);
  return fmt::format("{}:{}", host, port);
}

Task<Result<void>> read_exactly(Stream& stream, std::span<std::byte> into, Duration timeout) {
  const TimePoint deadline = deadline_after(timeout);
  while (!into.empty()) {
    auto count = co_await stream.read_some(into, deadline - SteadyClock().now());
    if (!count) co_return fail(count.error());
    if (*count == 0)
      co_return fail(Code::kUnavailable, "{} closed with {} bytes outstanding", stream.peer(), into.size());
    into = into.subspan(*count);
  }
  co_return Result<void>();
}

}  // namespace baton::net
