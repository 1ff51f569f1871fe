#include "apps/bench/bench_flags.h"

#include <algorithm>
#include <cstdio>

#include "apps/args/flag_table.h"

namespace baton::apps {
namespace {

std::vector<std::string> names_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

// The full name of `name`, or `name` itself.
Result<std::string> complete(const std::vector<std::string>& names, const std::string& name, bool others_too) {
  if (std::ranges::find(names, name) != names.end()) return name;
  if (others_too && find_flag(name) != nullptr) return name;
  std::vector<std::string> matches;
  for (const auto& known : names) {
    if (known.starts_with(name)) matches.push_back(known);
  }
  if (matches.size() == 1) return matches.front();
  if (matches.empty() || others_too) return name;
  std::string list;
  for (const auto& match : matches) list += (list.empty() ? "--" : ", --") + match;
  return fail(Code::kInvalidArgument, "ambiguous option: --{} could match {}", name, list);
}

}  // namespace

Result<std::vector<std::string>> complete_flags(const CLI::App& app, std::vector<std::string> arguments,
                                                bool others_too) {
  const auto names = names_of(app);
  for (auto& argument : arguments) {
    if (!argument.starts_with("--") || argument.size() == 2) continue;
    const size_t equals = argument.find('=');
    std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    if (name.find('.') != std::string::npos) continue;
    std::ranges::replace(name, '_', '-');
    BATON_TRY_ASSIGN(name, complete(names, name, others_too));
    argument = "--" + name + (equals == std::string::npos ? "" : argument.substr(equals));
  }
  return arguments;
}

std::optional<int> parse_bench_line(CLI::App& app, int argc, char** argv, bool others_too) {
  auto arguments = complete_flags(app, std::vector<std::string>(argv, argv + argc), others_too);
  if (!arguments) {
    fmt::print(stderr, "{}: error: {}\n", app.get_name(), arguments.error().message());
    return 2;
  }
  std::ranges::reverse(*arguments);
  try {
    app.parse(*arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

void add_dataset_flags(CLI::App& app, DatasetFlags& flags) {
  auto& options = flags.options;
  const auto add = [&](const char* name, auto& value, const char* help) {
    app.add_option(name, value, help)->group("Data set")->capture_default_str();
  };
  add("--dataset-name", options.name, "random, prefix_repetition, sharegpt, custom or timed_trace");
  add("--dataset-path", options.path, "The file of sharegpt, custom and timed_trace");
  add("--num-prompts", options.count, "Requests");
  add("--seed", options.seed, "One seed, one load");
  add("--input-len", flags.input_len, "Sets --random-input-len");
  add("--output-len", flags.output_len, "Sets the data set's own output length");
  add("--random-input-len", options.input_len, "Tokens of a prompt");
  add("--random-output-len", options.output_len, "Tokens of an answer");
  add("--random-range-ratio", flags.range_ratio, "Lengths within len * (1 - r) to len * (1 + r); or JSON");
  add("--random-prefix-len", options.prefix_len, "Tokens of a prefix that all prompts share");
  add("--prefix-repetition-prefix-len", options.repetition_prefix_len, "Tokens of a prefix");
  add("--prefix-repetition-suffix-len", options.repetition_suffix_len, "Tokens behind it");
  add("--prefix-repetition-num-prefixes", options.num_prefixes, "Prefixes");
  add("--prefix-repetition-output-len", options.repetition_output_len, "Tokens of an answer");
  add("--sharegpt-output-len", options.sharegpt_output_len, "In place of the length of the file's answer");
  add("--custom-output-len", options.custom_output_len, "-1: each line's output_tokens");
  add("--timed-trace-chunk-hash-size", options.trace_chunk_tokens, "Tokens that a hash stands for");
  add("--timed-trace-sec-multiplier", options.trace_seconds, "Seconds in a unit of the time stamps");
  add("--timed-trace-label-timestamp", options.timestamp_field, "Name of a field");
  add("--timed-trace-label-input-length", options.input_field, "Name of a field");
  add("--timed-trace-label-output-length", options.output_field, "Name of a field");
  add("--timed-trace-label-hash-ids", options.hashes_field, "Name of a field");
  app.add_flag("--no-oversample", flags.no_oversample, "Don't repeat a file that is too short")->group("Data set");
  app.add_flag("--disable-shuffle", flags.disable_shuffle, "A file's requests in its order")->group("Data set");
}

Result<bench::DatasetOptions> dataset_options(const DatasetFlags& flags) {
  auto options = flags.options;
  BATON_TRY_ASSIGN(const auto ratios, bench::parse_range_ratio(flags.range_ratio));
  options.input_range_ratio = ratios.first;
  options.output_range_ratio = ratios.second;
  options.oversample = !flags.no_oversample;
  options.shuffle = !flags.disable_shuffle;
  if (flags.input_len >= 0) options.input_len = flags.input_len;
  if (flags.output_len >= 0) {
    options.output_len = options.repetition_output_len = options.sharegpt_output_len = options.custom_output_len =
        flags.output_len;
  }
  return options;
}

}  // namespace baton::apps
