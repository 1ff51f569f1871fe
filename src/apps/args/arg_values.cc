#include "apps/args/arg_values.h"

#include <charconv>
#include <cmath>

namespace baton::apps {

std::optional<int64_t> parse_plain_int(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_plain_float(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_human_int(std::string_view text) {
  if (text == "auto") return -1;
  if (text.empty()) return std::nullopt;
  constexpr std::string_view kDecimal = "kmgt", kBinary = "KMGT";
  const char last = text.back();
  const size_t decimal = kDecimal.find(last), binary = kBinary.find(last);
  if (decimal == std::string_view::npos && binary == std::string_view::npos) return parse_plain_int(text);
  const std::string_view number = text.substr(0, text.size() - 1);
  if (binary != std::string_view::npos) {
    const auto value = parse_plain_int(number);
    if (!value || std::abs(*value) > (int64_t{1} << 20)) return std::nullopt;
    return *value << (10 * (binary + 1));
  }
  const auto value = parse_plain_float(number);
  if (!value || std::fabs(*value) > 1e6) return std::nullopt;
  return std::llround(*value * std::pow(1000.0, static_cast<double>(decimal + 1)));
}

nlohmann::json parse_loose_value(std::string_view text) {
  auto parsed = nlohmann::json::parse(text, nullptr, false);
  if (!parsed.is_discarded()) return parsed;
  if (const auto number = text == "auto" ? std::nullopt : parse_human_int(text)) return *number;
  return std::string(text);
}

Status invalid_value(std::string_view flag, std::string_view kind, std::string_view value) {
  return Status(Code::kInvalidArgument, fmt::format("argument --{}: invalid {} value: '{}'", flag, kind, value));
}

}  // namespace baton::apps
