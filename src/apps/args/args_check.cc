#include "apps/args/args_check.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "apps/args/arg_values.h"
#include "apps/args/json_switches.h"

namespace baton::apps {
namespace {

using nlohmann::json;

Result<void> check_type(const Flag& flag, const std::string& value) {
  switch (flag.kind) {
    case FlagKind::kInt:
      if (!parse_plain_int(value)) return fail(invalid_value(flag.name, "int", value));
      break;
    case FlagKind::kHumanInt:
      if (!parse_human_int(value)) return fail(invalid_value(flag.name, "human_readable_int", value));
      break;
    case FlagKind::kFloat:
      if (!parse_plain_float(value)) return fail(invalid_value(flag.name, "float", value));
      break;
    case FlagKind::kJson:
      if (json::parse(value, nullptr, false).is_discarded()) return fail(invalid_value(flag.name, "loads", value));
      break;
    default:
      break;
  }
  return {};
}

bool is_harmless(const Flag& flag, const std::string& value) {
  std::string_view rest = flag.harmless;
  while (!rest.empty()) {
    const size_t bar = std::min(rest.find('|'), rest.size());
    const std::string_view choice = rest.substr(0, bar);
    if (choice == value) return true;
    if (flag.kind == FlagKind::kJson && json::parse(choice, nullptr, false) == json::parse(value, nullptr, false)) {
      return true;
    }
    rest.remove_prefix(std::min(bar + 1, rest.size()));
  }
  return false;
}

std::string lower(std::string_view text) {
  std::string made(text);
  std::transform(made.begin(), made.end(), made.begin(), [](unsigned char c) { return std::tolower(c); });
  return made;
}

bool matches(const Flag& flag, const std::string& word) {
  if (word.empty() || word == "all") return true;
  const std::string wanted = lower(word);
  return lower(flag.name).contains(wanted) || lower(flag.group) == wanted || lower(flag.help).contains(wanted);
}

std::string_view kind_name(FlagKind kind) {
  switch (kind) {
    case FlagKind::kString:
      return "TEXT";
    case FlagKind::kInt:
      return "N";
    case FlagKind::kHumanInt:
      return "N[kmgtKMGT]";
    case FlagKind::kFloat:
      return "X";
    case FlagKind::kBool:
      return "";
    case FlagKind::kList:
      return "TEXT...";
    case FlagKind::kAppend:
      return "TEXT";
    case FlagKind::kJson:
      return "JSON";
  }
  return "";
}

}  // namespace

Result<StartReport> check_arguments(const ParsedArgs& parsed) {
  StartReport report{.inert = {}, .warnings = parsed.warnings};
  std::vector<std::string> refused;
  for (const auto& [name, values] : parsed.values) {
    const Flag& flag = *find_flag(name);
    for (const auto& value : values) BATON_TRY(check_type(flag, value));
    const std::string& first = values.front();
    const std::string shown = flag.kind == FlagKind::kBool ? "--" + name : fmt::format("--{} {}", name, first);
    if (flag.status == FlagStatus::kRefused && !is_harmless(flag, first)) {
      refused.push_back(fmt::format("{}: {}", shown, flag.note));
    } else if (flag.status == FlagStatus::kInert && !(flag.kind == FlagKind::kBool && first == "false")) {
      if (flag.kind != FlagKind::kJson) report.inert.push_back(fmt::format("--{}: {}", name, flag.note));
    }
    if (flag.kind != FlagKind::kJson || flag.status == FlagStatus::kRefused) continue;
    static constexpr std::string_view kWithSwitches[] = {"additional-config",         "attention-config",
                                                         "compilation-config",        "kv-transfer-config",
                                                         "model-loader-extra-config", "profiler-config"};
    if (std::find(std::begin(kWithSwitches), std::end(kWithSwitches), name) != std::end(kWithSwitches)) {
      auto switches = check_switches(name, json::parse(first));
      if (!switches) {
        if (switches.error().code() != Code::kUnimplemented) return fail(switches.error());
        refused.push_back(switches.error().message());
        continue;
      }
      report.inert.insert(report.inert.end(), switches->inert.begin(), switches->inert.end());
      report.warnings.insert(report.warnings.end(), switches->warnings.begin(), switches->warnings.end());
    } else if (flag.status == FlagStatus::kInert) {
      report.inert.push_back(fmt::format("--{}: {}", name, flag.note));
    }
  }
  if (!refused.empty()) {
    return fail(Code::kUnimplemented, "this version can't start so:\n  {}", fmt::join(refused, "\n  "));
  }
  return report;
}

std::string help_text(const std::string& word) {
  std::string text =
      "usage: baton serve MODEL [options]\n\nMODEL is a GGUF file, a Hugging Face folder, or an id in a local cache.\n";
  std::string_view group;
  for (const auto& flag : serve_flags()) {
    if (!matches(flag, word)) continue;
    if (flag.group != group) text += fmt::format("\n{}:\n", group = flag.group);
    std::string left = fmt::format("--{} {}", flag.name, kind_name(flag.kind));
    if (flag.kind == FlagKind::kBool) left = fmt::format("--[no-]{}", flag.name);
    std::string right(flag.help);
    if (!flag.fallback.empty()) right += fmt::format(" (default: {})", flag.fallback);
    if (flag.status == FlagStatus::kInert) right += fmt::format(" [inert: {}]", flag.note);
    if (flag.status == FlagStatus::kRefused) {
      right +=
          fmt::format(" [{}{}]", flag.note, flag.harmless.empty() ? "" : fmt::format("; accepted: {}", flag.harmless));
    }
    text += fmt::format("  {:<46} {}\n", left, right);
  }
  return text;
}

}  // namespace baton::apps
