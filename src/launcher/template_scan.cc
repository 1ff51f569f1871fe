#include "launcher/template_scan.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace baton::launcher {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The number that begins at `text` after spaces, quotes and `separators`; at most 5 digits, and nothing may follow it
// that would make it part of something longer.
std::optional<int> number_at(std::string_view text, std::string_view separators) {
  size_t at = 0;
  while (at < text.size() && (text[at] == ' ' || text[at] == '"' || text[at] == '\'' || text[at] == '\\' ||
                              separators.find(text[at]) != std::string_view::npos)) {
    ++at;
  }
  int value = 0;
  const char* const begin = text.data() + at;
  const char* const end = text.data() + std::min(text.size(), at + 6);
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stop - begin > 5) return std::nullopt;
  const auto rest = text.substr(static_cast<size_t>(stop - text.data()));
  if (!rest.empty() && (is_word(rest.front()) || rest.front() == '$')) return std::nullopt;
  return value;
}

// Lines that are comments as a whole are left out.
std::string without_comments(std::string_view text) {
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const auto line = text.substr(begin, end - begin);
    const size_t first = line.find_first_not_of(" \t");
    if (first == std::string_view::npos || line[first] != '#') kept += fmt::format("{}\n", line);
    begin = end + 1;
  }
  return kept;
}

std::optional<int> number_after(std::string_view text, std::string_view key, std::string_view separators) {
  for (size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    if (at > 0 && is_word(text[at - 1])) continue;
    if (const auto value = number_at(text.substr(at + key.size()), separators)) return value;
  }
  return std::nullopt;
}

// $8, $9, ${8}, ${10}: what a launch of seven arguments leaves empty.
std::vector<std::string> unknown_arguments(std::string_view text) {
  std::vector<std::string> found;
  const auto add = [&](std::string name) {
    if (std::find(found.begin(), found.end(), name) == found.end()) found.push_back(std::move(name));
  };
  for (size_t at = text.find('$'); at != std::string_view::npos; at = text.find('$', at + 1)) {
    const auto rest = text.substr(at + 1);
    if (!rest.empty() && (rest[0] == '8' || rest[0] == '9')) add(fmt::format("${}", rest[0]));
    if (rest.size() < 2 || rest[0] != '{') continue;
    int number = 0;
    const auto [stop, error] = std::from_chars(rest.data() + 1, rest.data() + rest.size(), number);
    // With a default (":-", "-") nothing is missing.
    if (error == std::errc() && number > 7 && *stop == '}') add(fmt::format("${{{}}}", number));
  }
  return found;
}

}  // namespace

TemplateFacts scan_template(std::string_view text) {
  const std::string script = without_comments(text);
  TemplateFacts facts;
  facts.kv_port = number_after(script, "kv_port", ":");
  if (!facts.kv_port) facts.kv_port = number_after(script, "KV_PORT=", "");
  const int pipeline = number_after(script, "--pipeline-parallel-size", "=").value_or(1);
  const int context = number_after(script, "--prefill-context-parallel-size", "=").value_or(1);
  facts.ranks_per_tp = std::clamp(pipeline, 1, 1024) * std::clamp(context, 1, 1024);
  facts.unknown = unknown_arguments(script);
  return facts;
}

std::vector<PortRange> port_ranges(const LaunchPlan& plan, const TemplateFacts& facts) {
  const auto& options = plan.options;
  const int count = options.dp_size_local;
  std::vector<PortRange> ranges{
      {.what = "API ports (--vllm-start-port)", .first = options.start_port, .last = options.start_port + count - 1}};
  if (facts.kv_port) {
    const int ranks = std::min(options.tp_size * facts.ranks_per_tp, 65536);
    const int first = *facts.kv_port + options.dp_rank_start * ranks;
    ranges.push_back({.what = fmt::format("ports of the KV hand-off (kv_port {} in {}, {} ranks a replica)",
                                          *facts.kv_port, options.template_path, ranks),
                      .first = first,
                      .last = first + count * ranks - 1});
  }
  if (options.dp_rank_start == 0) {
    ranges.push_back({.what = "--dp-rpc-port", .first = options.dp_rpc_port, .last = options.dp_rpc_port});
  }
  return ranges;
}

Result<void> check_port_ranges(const std::vector<PortRange>& ranges) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto& one = ranges[i];
    if (one.last > 65535) {
      return fail(Code::kInvalidArgument, "{}: {} to {} end beyond 65535", one.what, one.first, one.last);
    }
    for (size_t j = i + 1; j < ranges.size(); ++j) {
      const auto& other = ranges[j];
      if (one.first > other.last || other.first > one.last) continue;
      return fail(Code::kInvalidArgument, "{}, {} to {}, overlap {}, {} to {}: move one of them", one.what, one.first,
                  one.last, other.what, other.first, other.last);
    }
  }
  return {};
}

}  // namespace baton::launcher
