#include "bench/dataset_files.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unordered_map>

#include "bench/random_prompt.h"

namespace baton::bench {
namespace {

using nlohmann::json;

constexpr int64_t kTokensMax = 16'000'000;

Result<std::string> read_file(const std::string& path, const std::string& dataset) {
  if (path.empty()) return fail(Code::kInvalidArgument, "--dataset-name {} needs --dataset-path FILE", dataset);
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(Code::kNotFound, "--dataset-path {}: can't be read", path);
  std::ostringstream content;
  content << file.rdbuf();
  if (file.bad() || content.fail()) return fail(Code::kNotFound, "--dataset-path {}: is empty or can't be read", path);
  return std::move(content).str();
}

// Calls take(object, line number) for every line that isn't blank.
template <typename Take>
Result<void> each_line(const DatasetOptions& options, Take take) {
  BATON_TRY_ASSIGN(const std::string content, read_file(options.path, options.name));
  std::istringstream lines(content);
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto object = json::parse(line, nullptr, false);
    if (!object.is_object()) return fail(Code::kDataLoss, "{}:{}: not a JSON object", options.path, number);
    if (const auto taken = take(object, number); !taken) {
      return fail(taken.error().with_context(fmt::format("{}:{}", options.path, number)));
    }
  }
  return {};
}

Result<int64_t> count_field(const json& object, const std::string& name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return fail(Code::kDataLoss, "\"{}\" is not a number", name);
  const double value = found->get<double>();
  if (!(value >= 0 && value <= static_cast<double>(kTokensMax))) {
    return fail(Code::kDataLoss, "\"{}\" is {}; it must be from 0 to {}", name, value, kTokensMax);
  }
  return static_cast<int64_t>(value);
}

// As many as were asked for: shuffled, cut, or repeated.
Result<std::vector<Sample>> sized(std::vector<Sample> samples, const DatasetOptions& options) {
  if (samples.empty()) return fail(Code::kDataLoss, "{}: holds no usable request", options.path);
  std::mt19937_64 random(options.seed);
  if (options.shuffle) std::ranges::shuffle(samples, random);
  const auto have = samples.size();
  const auto wanted = static_cast<size_t>(options.count);
  if (have > wanted) samples.resize(wanted);
  if (!options.oversample) return samples;
  while (samples.size() < wanted) samples.push_back(samples[samples.size() % have]);
  return samples;
}

// vLLM's bounds on a ShareGPT request: neither side below 4 tokens (an output length that was asked for is not
// checked), at most 1024 of prompt and 2048 in all.
bool usable(int64_t prompt, int64_t output, bool fixed_output) {
  return prompt >= 4 && (fixed_output || output >= 4) && prompt <= 1024 && prompt + output <= 2048;
}

}  // namespace

Result<std::vector<Sample>> sharegpt_dataset(const DatasetOptions& options, const text::Tokenizer& tokenizer) {
  BATON_TRY_ASSIGN(const std::string content, read_file(options.path, options.name));
  const auto all = json::parse(content, nullptr, false);
  if (!all.is_array()) return fail(Code::kDataLoss, "{}: not a JSON array of conversations", options.path);
  std::vector<const json*> turns;
  for (const auto& entry : all) {
    const auto found = entry.is_object() ? entry.find("conversations") : entry.end();
    if (found == entry.end() || !found->is_array() || found->size() < 2) continue;
    const auto text = [](const json& turn) {
      return turn.is_object() && turn.contains("value") && turn["value"].is_string();
    };
    if (text((*found)[0]) && text((*found)[1])) turns.push_back(&*found);
  }
  std::mt19937_64 random(options.seed);
  if (options.shuffle) std::ranges::shuffle(turns, random);
  std::vector<Sample> samples;
  for (const json* turn : turns) {
    if (std::ssize(samples) >= options.count) break;
    Sample sample{.prompt = (*turn)[0]["value"].get<std::string>()};
    sample.prompt_ids = encode_plain(tokenizer, sample.prompt);
    const bool fixed = options.sharegpt_output_len > 0;
    sample.output_tokens = fixed
                               ? options.sharegpt_output_len
                               : std::ssize(encode_plain(tokenizer, (*turn)[1]["value"].get_ref<const std::string&>()));
    if (usable(sample.prompt_tokens(), sample.output_tokens, fixed)) samples.push_back(std::move(sample));
  }
  auto in_order = options;
  in_order.shuffle = false;
  return sized(std::move(samples), in_order);
}

Result<std::vector<Sample>> custom_dataset(const DatasetOptions& options, const text::Tokenizer& tokenizer) {
  std::vector<Sample> samples;
  BATON_TRY(each_line(options, [&](const json& object, int64_t) -> Result<void> {
    if (!object.contains("prompt") || !object["prompt"].is_string()) {
      return fail(Code::kDataLoss, "\"prompt\" is not a string");
    }
    Sample sample{.prompt = object["prompt"].get<std::string>(), .output_tokens = options.custom_output_len};
    if (options.custom_output_len < 0) {
      BATON_TRY_ASSIGN(sample.output_tokens, count_field(object, "output_tokens"));
    }
    sample.prompt_ids = encode_plain(tokenizer, sample.prompt);
    samples.push_back(std::move(sample));
    return {};
  }));
  return sized(std::move(samples), options);
}

Result<std::vector<Sample>> timed_trace(const DatasetOptions& options, const text::Tokenizer& tokenizer) {
  RandomPrompts prompts(tokenizer, options.seed);
  if (prompts.vocabulary() == 0) return fail(Code::kFailedPrecondition, "the tokenizer has no ordinary tokens");
  if (options.trace_chunk_tokens < 1) {
    return fail(Code::kInvalidArgument, "--timed-trace-chunk-hash-size must be above 0");
  }
  std::unordered_map<int64_t, std::vector<TokenId>> pieces;
  std::vector<Sample> samples;
  std::optional<double> first;
  BATON_TRY(each_line(options, [&](const json& object, int64_t) -> Result<void> {
    if (std::ssize(samples) >= options.count) return {};
    const auto stamp = object.find(options.timestamp_field);
    if (stamp == object.end() || !stamp->is_number()) {
      return fail(Code::kDataLoss, "\"{}\" is not a number", options.timestamp_field);
    }
    const double at = stamp->get<double>() * options.trace_seconds;
    first = std::min(first.value_or(at), at);
    BATON_TRY_ASSIGN(const int64_t input, count_field(object, options.input_field));
    BATON_TRY_ASSIGN(const int64_t output, count_field(object, options.output_field));
    std::vector<TokenId> ids;
    const auto hashes = object.find(options.hashes_field);
    if (hashes != object.end() && hashes->is_array()) {
      for (const auto& hash : *hashes) {
        if (!hash.is_number_integer())
          return fail(Code::kDataLoss, "a member of \"{}\" is no integer", options.hashes_field);
        if (std::ssize(ids) >= input) break;
        auto& piece = pieces[hash.get<int64_t>()];
        if (piece.empty()) piece = prompts.draw(options.trace_chunk_tokens);
        ids.insert(ids.end(), piece.begin(), piece.end());
      }
    }
    const int64_t length = std::max<int64_t>(1, input);
    const auto rest = prompts.draw(length - std::min(length, std::ssize(ids)));
    ids.insert(ids.end(), rest.begin(), rest.end());
    ids.resize(static_cast<size_t>(length));
    Sample sample{.output_tokens = std::max<int64_t>(1, output), .at_s = at};
    prompts.settle(std::move(ids), length, sample);
    samples.push_back(std::move(sample));
    return {};
  }));
  if (samples.empty()) return fail(Code::kDataLoss, "{}: holds no request", options.path);
  for (auto& sample : samples) *sample.at_s -= *first;
  std::ranges::sort(samples, {}, [](const Sample& sample) { return *sample.at_s; });
  return samples;
}

}  // namespace baton::bench
