// Types and standing of what was parsed: wrong values are errors, refused flags stop the start, inert ones are listed.
#pragma once

#include <string>
#include <vector>

#include "apps/args/arg_grammar.h"
#include "base/status.h"

namespace baton::apps {

struct StartReport {
  std::vector<std::string> inert;  // one line per flag or switch that does nothing here, with the reason
  std::vector<std::string> warnings;
};
// kInvalidArgument for a value of the wrong type; kUnimplemented lists everything refused, one line each.
Result<StartReport> check_arguments(const ParsedArgs& parsed);

// --help: all groups, or the flags whose name, group or help holds `word` ("all" and "": everything).
std::string help_text(const std::string& word);

}  // namespace baton::apps
