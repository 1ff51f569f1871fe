// The loads that need no download: random prompts, prompts that share prefixes, and files (ShareGPT, JSON lines,
// traces). Lengths are vLLM's: drawn from the same ranges, and a random prompt is decoded and encoded until it has the
// length that was asked for, since neighbours may merge. One seed gives one load; it is not numpy's stream of numbers.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "bench/sample.h"
#include "text/tokenizer.h"

namespace baton::bench {

struct DatasetOptions {
  // random, prefix_repetition, sharegpt, custom, timed_trace
  std::string name = "random";
  std::string path;  // of the last three
  int64_t count = 1000;
  uint64_t seed = 0;
  // random: lengths within [len * (1 - ratio), len * (1 + ratio)], all behind one common prefix.
  int64_t input_len = 1024, output_len = 128, prefix_len = 0;
  double input_range_ratio = 0, output_range_ratio = 0;
  // prefix_repetition: count / num_prefixes prompts of each prefix, each with a suffix of its own.
  int64_t repetition_prefix_len = 256, repetition_suffix_len = 256, num_prefixes = 10, repetition_output_len = 128;
  // sharegpt: -1 takes the length of the conversation's answer. custom: -1 takes the line's "output_tokens".
  int64_t sharegpt_output_len = -1, custom_output_len = 256;
  bool shuffle = true;     // files
  bool oversample = true;  // repeats a file that is too short
  // timed_trace: names of the fields, how many seconds one unit of the time stamp is, tokens that one hash stands for.
  std::string timestamp_field = "timestamp", input_field = "input_length", output_field = "output_length",
              hashes_field = "hash_ids";
  double trace_seconds = 1;
  int64_t trace_chunk_tokens = 16;
};

// kInvalidArgument names the option, kNotFound and kDataLoss the file and its line.
Result<std::vector<Sample>> make_dataset(const DatasetOptions& options, const text::Tokenizer& tokenizer);

// "0.2", or {"input": 0.2, "output": 0.1} -> the two ratios, each in [0, 1).
Result<std::pair<double, double>> parse_range_ratio(const std::string& text);

}  // namespace baton::bench
