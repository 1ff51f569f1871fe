// A load whose lengths are not those asked for makes every figure wrong in silence.
#include "bench/dataset.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <set>

namespace baton::bench {
namespace {

const text::Tokenizer& tokenizer() {
  static const auto loaded = text::load_tokenizer_folder(BATON_SOURCE_DIR "/tests/data/tiny_llama").value();
  return *loaded;
}

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) : path_(::testing::TempDir() + "baton_dataset_test.json") {
    std::ofstream(path_) << content;
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Dataset, random_lengths_stay_in_their_range) {
  const auto samples = make_dataset(
      {.count = 40, .input_len = 20, .output_len = 10, .input_range_ratio = 0.5, .output_range_ratio = 0.5},
      tokenizer());
  ASSERT_TRUE(samples.has_value());
  ASSERT_EQ(samples->size(), 40u);
  std::set<int64_t> outputs;
  for (const auto& sample : *samples) {
    EXPECT_GE(sample.prompt_tokens(), 9);
    EXPECT_LE(sample.prompt_tokens(), 31);
    EXPECT_EQ(sample.prompt_ids, tokenizer().encode(sample.prompt, {.add_special_tokens = false}));
    outputs.insert(sample.output_tokens);
  }
  EXPECT_GE(*outputs.begin(), 5);
  EXPECT_LE(*outputs.rbegin(), 15);
  EXPECT_GT(outputs.size(), 4u);
}

TEST(Dataset, one_seed_one_load) {
  const DatasetOptions options{.count = 3, .seed = 5, .input_len = 12};
  const auto a = make_dataset(options, tokenizer()), b = make_dataset(options, tokenizer());
  auto other = options;
  other.seed = 6;
  const auto c = make_dataset(other, tokenizer());
  EXPECT_EQ((*a)[2].prompt, (*b)[2].prompt);
  EXPECT_NE((*a)[2].prompt, (*c)[2].prompt);
  EXPECT_NE((*a)[0].prompt, (*a)[1].prompt);
}

TEST(Dataset, prefixes_repeat) {
  const auto samples = make_dataset({.name = "prefix_repetition",
                                     .count = 9,
                                     .repetition_prefix_len = 24,
                                     .repetition_suffix_len = 8,
                                     .num_prefixes = 3,
                                     .repetition_output_len = 2},
                                    tokenizer());
  ASSERT_TRUE(samples.has_value());
  ASSERT_EQ(samples->size(), 9u);
  std::map<std::string, int> heads;
  for (const auto& sample : *samples) ++heads[sample.prompt.substr(0, 10)];
  EXPECT_EQ(heads.size(), 3u);
  for (const auto& [head, count] : heads) EXPECT_EQ(count, 3);
}

TEST(Dataset, sharegpt_takes_the_first_two_turns) {
  const TemporaryFile file(R"([
    {"conversations": [{"from": "human", "value": "tell me about the weather in the hills"},
                       {"from": "gpt", "value": "it rains, and then it rains, and rains"}]},
    {"conversations": [{"value": "alone"}]}, {"other": 1}, 7])");
  const auto samples = make_dataset({.name = "sharegpt", .path = file.path(), .count = 2}, tokenizer());
  ASSERT_TRUE(samples.has_value()) << samples.error().message();
  ASSERT_EQ(samples->size(), 2u);  // repeated to the number asked for
  EXPECT_EQ((*samples)[0].prompt, "tell me about the weather in the hills");
  EXPECT_EQ((*samples)[0].output_tokens,
            std::ssize(tokenizer().encode("it rains, and then it rains, and rains", {.add_special_tokens = false})));
}

TEST(Dataset, custom_lines_have_their_own_lengths) {
  const TemporaryFile file(
      "{\"prompt\": \"one\", \"output_tokens\": 3}\n\n{\"prompt\": \"two\", \"output_tokens\": 4}\n");
  DatasetOptions options{.name = "custom", .path = file.path(), .count = 2, .custom_output_len = -1, .shuffle = false};
  const auto samples = make_dataset(options, tokenizer());
  ASSERT_TRUE(samples.has_value());
  EXPECT_EQ((*samples)[0].output_tokens, 3);
  EXPECT_EQ((*samples)[1].prompt, "two");
}

TEST(Dataset, a_trace_keeps_times_lengths_and_shared_pieces) {
  const TemporaryFile file(
      "{\"timestamp\": 5000, \"input_length\": 24, \"output_length\": 3, \"hash_ids\": [1, 2]}\n"
      "{\"timestamp\": 7000, \"input_length\": 24, \"output_length\": 4, \"hash_ids\": [1, 3]}\n");
  const auto samples = make_dataset(
      {.name = "timed_trace", .path = file.path(), .count = 10, .trace_seconds = 0.001, .trace_chunk_tokens = 16},
      tokenizer());
  ASSERT_TRUE(samples.has_value()) << samples.error().message();
  ASSERT_EQ(samples->size(), 2u);
  EXPECT_EQ((*samples)[0].at_s, 0);
  EXPECT_NEAR(*(*samples)[1].at_s, 2, 1e-9);
  EXPECT_EQ((*samples)[1].output_tokens, 4);
  EXPECT_EQ((*samples)[0].prompt.substr(0, 8), (*samples)[1].prompt.substr(0, 8));
}

TEST(Dataset, errors_say_what_and_where) {
  const auto message = [](DatasetOptions options) { return make_dataset(options, tokenizer()).error().message(); };
  EXPECT_NE(message({.name = "custom"}).find("--dataset-path"), std::string::npos);
  EXPECT_NE(message({.name = "custom", .path = "/nowhere"}).find("/nowhere"), std::string::npos);
  const TemporaryFile bad("{\"prompt\": \"fine\"}\n{\"prompt\": 3}\n");
  EXPECT_NE(message({.name = "custom", .path = bad.path()}).find(":2: \"prompt\""), std::string::npos);
  EXPECT_NE(message({.name = "hf"}).find("choose from random"), std::string::npos);
  EXPECT_NE(message({.count = 0}).find("--num-prompts"), std::string::npos);
  EXPECT_NE(message({.input_len = 0}).find("--random-input-len"), std::string::npos);
}

TEST(Dataset, range_ratio) {
  EXPECT_EQ(parse_range_ratio("0.25").value(), std::pair(0.25, 0.25));
  EXPECT_EQ(parse_range_ratio(R"({"input": 0.1, "output": 0.2})").value(), std::pair(0.1, 0.2));
  for (const char* bad : {"1", "-0.1", "x", "{\"input\": 0.1}", ""}) EXPECT_FALSE(parse_range_ratio(bad)) << bad;
}

}  // namespace
}  // namespace baton::bench
