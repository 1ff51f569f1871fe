// The command lines of `baton bench ...`: vLLM's flags by vLLM's rules ("_" and "-" alike, unambiguous prefixes), and
// the data set's flags, which three commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/dataset.h"

namespace baton::apps {

// Gives every "--flag" of `arguments` its full name of those that `app` knows; others stay as they are. An ambiguous
// prefix is kInvalidArgument in argparse's words. `others_too`: flags that `app` does not know may be another parser's,
// so a prefix of one of that parser's names is left alone.
Result<std::vector<std::string>> complete_flags(const CLI::App& app, std::vector<std::string> arguments,
                                                bool others_too = false);

// Parses; returns an exit status when the command is to end here (help: 0, a wrong line: 2).
std::optional<int> parse_bench_line(CLI::App& app, int argc, char** argv, bool others_too = false);

struct DatasetFlags {
  bench::DatasetOptions options;
  std::string range_ratio = "0.0";
  int64_t input_len = -1, output_len = -1;  // of whatever data set there is; -1: not given
  bool no_oversample = false, disable_shuffle = false;
};
void add_dataset_flags(CLI::App& app, DatasetFlags& flags);
Result<bench::DatasetOptions> dataset_options(const DatasetFlags& flags);

}  // namespace baton::apps
