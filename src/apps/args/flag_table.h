// Every flag of `baton serve`: its name, kind, and what this version does with it. One row per flag; parsing, --help
// and the start-up report read this table, and nothing else knows a flag's name by heart but serve_setup.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace baton::apps {

enum class FlagKind : uint8_t {
  kString,
  kInt,
  kHumanInt,  // 32k, 32K, 1.5m; k m g t are powers of 1000, K M G T of 1024
  kFloat,
  kBool,    // --flag and --no-flag
  kList,    // one or more values after one flag
  kAppend,  // one value, may be repeated
  kJson,
};

enum class FlagStatus : uint8_t {
  kImplemented,
  kInert,    // accepted; has no counterpart here; said once, with `note`
  kRefused,  // known; values other than `harmless` stop the start with `note`
};

struct Flag {
  std::string_view name;  // "max-model-len"
  FlagKind kind;
  FlagStatus status;
  std::string_view group;     // of --help
  std::string_view fallback;  // the default, as help shows it
  std::string_view help;
  std::string_view note;      // kInert: why it does nothing; kRefused: what is missing
  std::string_view harmless;  // kRefused: accepted values, separated by '|'
};

std::span<const Flag> serve_flags();
// nullptr when there is none of exactly this name.
const Flag* find_flag(std::string_view name);
// "-tp" to "tensor-parallel-size"; empty when unknown.
std::string_view short_form(std::string_view token);

}  // namespace baton::apps
