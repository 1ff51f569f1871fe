#include "bench/dataset.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/dataset_files.h"
#include "bench/random_prompt.h"

namespace baton::bench {
namespace {

constexpr int64_t kTokensMax = 16'000'000;   // of one prompt
constexpr int64_t kSamplesMax = 10'000'000;  // of one load

struct Range {
  int64_t low, high;
};
Range range_of(int64_t length, double ratio) {
  const auto middle = static_cast<double>(length);
  return {static_cast<int64_t>(std::floor(middle * (1 - ratio))),
          static_cast<int64_t>(std::ceil(middle * (1 + ratio)))};
}

Result<std::vector<Sample>> random_dataset(const DatasetOptions& options, const text::Tokenizer& tokenizer) {
  RandomPrompts prompts(tokenizer, options.seed);
  if (prompts.vocabulary() == 0) return fail(Code::kFailedPrecondition, "the tokenizer has no ordinary tokens");
  const int64_t added = special_tokens_added(tokenizer);
  const auto inputs = range_of(std::max<int64_t>(0, options.input_len - added), options.input_range_ratio);
  const auto outputs = range_of(options.output_len, options.output_range_ratio);
  if (options.prefix_len + inputs.low < 1) {
    return fail(Code::kInvalidArgument,
                "--random-input-len {} is too small: the tokenizer adds {} tokens of its own and --random-range-ratio "
                "lets the rest shrink to {}; raise it or --random-prefix-len",
                options.input_len, added, inputs.low);
  }
  Sample prefix;
  if (options.prefix_len > 0) prompts.settle(prompts.draw(options.prefix_len), options.prefix_len, prefix);
  std::vector<Sample> samples;
  for (int64_t i = 0; i < options.count; ++i) {
    const int64_t length = prompts.between(inputs.low, inputs.high);
    auto ids = prefix.prompt_ids;
    const auto own = prompts.run(prompts.between(0, prompts.vocabulary() - 1) + i, length);
    ids.insert(ids.end(), own.begin(), own.end());
    Sample sample{.output_tokens = std::max<int64_t>(1, prompts.between(outputs.low, outputs.high))};
    prompts.settle(std::move(ids), options.prefix_len + length, sample);
    samples.push_back(std::move(sample));
  }
  return samples;
}

Result<std::vector<Sample>> prefix_repetition(const DatasetOptions& options, const text::Tokenizer& tokenizer) {
  if (options.num_prefixes < 1) return fail(Code::kInvalidArgument, "--prefix-repetition-num-prefixes must be above 0");
  const int64_t each = options.count / options.num_prefixes;
  if (each < 1) {
    return fail(Code::kInvalidArgument, "--num-prompts {} is fewer than --prefix-repetition-num-prefixes {}",
                options.count, options.num_prefixes);
  }
  RandomPrompts prompts(tokenizer, options.seed);
  if (prompts.vocabulary() == 0) return fail(Code::kFailedPrecondition, "the tokenizer has no ordinary tokens");
  std::vector<Sample> samples;
  for (int64_t p = 0; p < options.num_prefixes; ++p) {
    Sample prefix;
    prompts.settle(prompts.draw(options.repetition_prefix_len), options.repetition_prefix_len, prefix);
    for (int64_t i = 0; i < each; ++i) {
      Sample suffix;
      prompts.settle(prompts.draw(options.repetition_suffix_len), options.repetition_suffix_len, suffix);
      Sample sample{.prompt = prefix.prompt + suffix.prompt, .output_tokens = options.repetition_output_len};
      sample.prompt_ids = encode_plain(tokenizer, sample.prompt);
      samples.push_back(std::move(sample));
    }
  }
  std::ranges::shuffle(samples, prompts.generator());
  return samples;
}

Result<void> check_bounds(const DatasetOptions& options) {
  if (options.count < 1 || options.count > kSamplesMax) {
    return fail(Code::kInvalidArgument, "--num-prompts is {}; it must be from 1 to {}", options.count, kSamplesMax);
  }
  const std::pair<const char*, int64_t> lengths[] = {{"--random-input-len", options.input_len},
                                                     {"--random-output-len", options.output_len},
                                                     {"--random-prefix-len", options.prefix_len},
                                                     {"--prefix-repetition-prefix-len", options.repetition_prefix_len},
                                                     {"--prefix-repetition-suffix-len", options.repetition_suffix_len},
                                                     {"--prefix-repetition-output-len", options.repetition_output_len}};
  for (const auto& [flag, length] : lengths) {
    if (length < 0 || length > kTokensMax) {
      return fail(Code::kInvalidArgument, "{} is {}; it must be from 0 to {}", flag, length, kTokensMax);
    }
  }
  return {};
}

}  // namespace

Result<std::vector<Sample>> make_dataset(const DatasetOptions& options, const text::Tokenizer& tokenizer) {
  BATON_TRY(check_bounds(options));
  if (options.name == "random") return random_dataset(options, tokenizer);
  if (options.name == "prefix_repetition") return prefix_repetition(options, tokenizer);
  if (options.name == "sharegpt") return sharegpt_dataset(options, tokenizer);
  if (options.name == "custom") return custom_dataset(options, tokenizer);
  if (options.name == "timed_trace") return timed_trace(options, tokenizer);
  return fail(Code::kInvalidArgument,
              "--dataset-name '{}': choose from random, prefix_repetition, sharegpt, custom, timed_trace (the others "
              "of vLLM are downloads or hold images and sound)",
              options.name);
}

Result<std::pair<double, double>> parse_range_ratio(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  double input = -1, output = -1;
  if (json.is_number()) input = output = json.get<double>();
  if (json.is_object() && json.contains("input") && json.contains("output") && json["input"].is_number() &&
      json["output"].is_number()) {
    input = json["input"].get<double>();
    output = json["output"].get<double>();
  }
  const auto fine = [](double ratio) { return ratio >= 0 && ratio < 1; };
  if (fine(input) && fine(output)) return std::pair(input, output);
  return fail(Code::kInvalidArgument,
              "--random-range-ratio '{}': a number from 0 to below 1, or {{\"input\": number, \"output\": number}}",
              text);
}

}  // namespace baton::bench
