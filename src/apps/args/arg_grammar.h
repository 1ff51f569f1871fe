// vLLM's command-line grammar: `_` and `-` alike, dotted flags merged to JSON, unambiguous prefixes, --no- forms, YAML
// configuration, last wins. Pure but for reading the --config file.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/args/flag_table.h"
#include "base/status.h"

namespace baton::apps {

struct ParsedArgs {
  std::optional<std::string> model;
  // By full name. Boolean flags hold "true" or "false"; others their values, the last occurrence's only (kAppend: all).
  std::map<std::string, std::vector<std::string>, std::less<>> values;
  std::vector<std::string> warnings;
  std::optional<std::string> help;  // --help or --help=WORD

  bool has(std::string_view name) const { return values.contains(name); }
  // The value of a flag that takes one; empty when it was not given.
  std::string value(std::string_view name) const;
};

// kInvalidArgument in argparse's words ("unrecognized arguments: --x", "ambiguous option: --max-m could match ...").
Result<ParsedArgs> parse_arguments(std::span<const std::string> arguments);

}  // namespace baton::apps
