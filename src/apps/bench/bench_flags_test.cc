// A guide's command line must be understood as vLLM understands it.
#include "apps/bench/bench_flags.h"

#include <gtest/gtest.h>

namespace baton::apps {
namespace {

std::optional<int> parse(CLI::App& app, std::vector<std::string> words, bool others_too = false) {
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  return parse_bench_line(app, static_cast<int>(pointers.size()), pointers.data(), others_too);
}

TEST(BenchFlags, an_abbreviation_and_underscores_name_the_flag) {
  CLI::App app;
  DatasetFlags flags;
  add_dataset_flags(app, flags);
  EXPECT_EQ(parse(app, {"--random-input", "77", "--random_output_len=5", "--num_prompts", "3"}), std::nullopt);
  EXPECT_EQ(flags.options.input_len, 77);
  EXPECT_EQ(flags.options.output_len, 5);
  EXPECT_EQ(flags.options.count, 3);
}

TEST(BenchFlags, an_ambiguous_abbreviation_is_refused) {
  CLI::App app;
  DatasetFlags flags;
  add_dataset_flags(app, flags);
  const auto completed = complete_flags(app, {"--random-i", "1", "--random", "2"});
  ASSERT_FALSE(completed.has_value());
  EXPECT_NE(completed.error().message().find("ambiguous option: --random could match --random-input-len"),
            std::string::npos);
}

TEST(BenchFlags, an_unknown_flag_ends_with_2) {
  CLI::App app;
  DatasetFlags flags;
  add_dataset_flags(app, flags);
  EXPECT_EQ(parse(app, {"--no-such-flag"}), 2);
}

TEST(BenchFlags, flags_of_the_engine_stay_for_its_parser) {
  CLI::App app;
  app.allow_extras();
  DatasetFlags flags;
  add_dataset_flags(app, flags);
  EXPECT_EQ(parse(app, {"--model", "m", "--num-prompts", "3", "--max_num_seqs", "8"}, true), std::nullopt);
  EXPECT_EQ(app.remaining(), (std::vector<std::string>{"--model", "m", "--max-num-seqs", "8"}));
}

TEST(BenchFlags, one_length_sets_that_of_every_data_set) {
  DatasetFlags flags;
  flags.output_len = 9;
  const auto options = dataset_options(flags);
  ASSERT_TRUE(options.has_value());
  EXPECT_EQ(options->output_len, 9);
  EXPECT_EQ(options->custom_output_len, 9);
  EXPECT_EQ(options->repetition_output_len, 9);
}

}  // namespace
}  // namespace baton::apps
