// The command lines of the public guides must be read as launch_online_dp.py reads them.
#include "apps/launch_args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::apps {
namespace {

using ::testing::HasSubstr;

TEST(LaunchArgs, TheGuidesCommandLines) {
  const auto decode =
      parse_launch_args({"--dp-size", "32", "--tp-size", "1", "--dp-size-local", "16", "--dp-rank-start", "16",
                         "--dp-address", "192.0.0.3", "--dp-rpc-port", "12321", "--vllm-start-port", "7100"});
  ASSERT_TRUE(decode) << decode.error().message();
  ASSERT_EQ(decode->plan.children.size(), 16u);
  EXPECT_EQ(launcher::command_text(decode->plan, decode->plan.children[1]),
            "bash ./run_dp_template.sh 1 7101 32 17 192.0.0.3 12321 1");
  // The original's defaults; its rpc port is a number that its own subprocess call does not take.
  const auto defaults = parse_launch_args({"--dp-size=2", "--dp-address=10.0.0.1"}).value();
  ASSERT_EQ(defaults.plan.children.size(), 2u);
  EXPECT_EQ(launcher::command_text(defaults.plan, defaults.plan.children[1]),
            "bash ./run_dp_template.sh 1 9001 2 1 10.0.0.1 12345 1");
  EXPECT_EQ(defaults.plan.children[1].log_file, "./logs/dp1_port9001.log");
}

TEST(LaunchArgs, MistakesAreNamed) {
  EXPECT_THAT(parse_launch_args({"--dp-address", "a"}).error().message(), HasSubstr("--dp-size"));
  EXPECT_THAT(parse_launch_args({"--dp-size", "2"}).error().message(), HasSubstr("--dp-address"));
  EXPECT_THAT(parse_launch_args({"--dp-size", "two", "--dp-address", "a"}).error().message(), HasSubstr("--dp-size"));
  EXPECT_THAT(parse_launch_args({"--dp-size", "2", "--dp-address", "a", "--dp-rank-start", "1"}).error().message(),
              HasSubstr("end at rank 2"));
  EXPECT_FALSE(parse_launch_args({"--dp-size", "2", "--dp-address", "a", "--nonsense"}));
  EXPECT_THAT(parse_launch_args({"--help"}).value().help, HasSubstr("--vllm-start-port"));
}

}  // namespace
}  // namespace baton::apps
