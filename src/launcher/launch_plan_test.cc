// What the template receives must be what vLLM-Ascend's launcher passes, and a wrong plan must start nothing.
#include "launcher/launch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/template_scan.h"

namespace baton::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Options given as in the DeepSeek guide, decode node 2 of 2.
LaunchOptions guide() {
  LaunchOptions options;
  options.dp_size = 32;
  options.dp_size_local = 16;
  options.dp_rank_start = 16;
  options.dp_address = "192.0.0.3";
  options.dp_rpc_port = 12321;
  options.start_port = 7100;
  return options;
}

TEST(LaunchPlan, SevenArgumentsPerLocalRank) {
  const auto plan = plan_launch(guide()).value();
  ASSERT_EQ(plan.children.size(), 16u);
  EXPECT_THAT(plan.children[0].arguments, ElementsAre("0", "7100", "32", "16", "192.0.0.3", "12321", "1"));
  EXPECT_THAT(plan.children[15].arguments, ElementsAre("15", "7115", "32", "31", "192.0.0.3", "12321", "1"));
  auto prefill = guide();
  prefill.dp_size = 2;
  prefill.dp_size_local = -1;
  prefill.dp_rank_start = 0;
  prefill.tp_size = 8;
  const auto two = plan_launch(prefill).value();
  ASSERT_EQ(two.children.size(), 2u);
  EXPECT_THAT(two.children[1].arguments,
              ElementsAre("8,9,10,11,12,13,14,15", "7101", "2", "1", "192.0.0.3", "12321", "8"));
  EXPECT_EQ(command_text(two, two.children[0]), "bash ./run_dp_template.sh 0,1,2,3,4,5,6,7 7100 2 0 192.0.0.3 12321 8");
}

TEST(LaunchPlan, RangesAreCheckedByFlag) {
  const auto refusal = [](auto change) {
    auto options = guide();
    change(options);
    const auto plan = plan_launch(options);
    return plan ? std::string() : plan.error().message();
  };
  EXPECT_THAT(refusal([](auto& o) { o.dp_size = 0; }), HasSubstr("--dp-size: 0"));
  EXPECT_THAT(refusal([](auto& o) { o.tp_size = 0; }), HasSubstr("--tp-size: 0"));
  EXPECT_THAT(refusal([](auto& o) { o.dp_size_local = 0; }), HasSubstr("--dp-size-local: 0 is not from 1 to 32"));
  EXPECT_THAT(refusal([](auto& o) { o.dp_size_local = 33; }), HasSubstr("--dp-size-local: 33"));
  EXPECT_THAT(refusal([](auto& o) { o.dp_rank_start = 17; }), HasSubstr("end at rank 32, but --dp-size is 32"));
  EXPECT_THAT(refusal([](auto& o) { o.dp_rank_start = -1; }), HasSubstr("--dp-rank-start: -1"));
  EXPECT_THAT(refusal([](auto& o) { o.start_port = 65530; }), HasSubstr("ports up to 65545"));
  EXPECT_THAT(refusal([](auto& o) { o.start_port = 80; }), HasSubstr("--vllm-start-port: 80"));
  EXPECT_THAT(refusal([](auto& o) { o.dp_rpc_port = 7107; }), HasSubstr("is among the API ports 7100 to 7115"));
  EXPECT_THAT(refusal([](auto& o) { o.dp_address.clear(); }), HasSubstr("--dp-address"));
}

TEST(TemplateScan, ReadsWhatIsPlainAndLeavesTheRest) {
  const auto plain = scan_template("vllm serve m --kv-transfer-config \\\n '{\"kv_port\": \"36000\", \"x\": 1}'\n");
  EXPECT_EQ(plain.kv_port, 36000);
  EXPECT_EQ(plain.ranks_per_tp, 1);
  EXPECT_EQ(scan_template("'{\"kv_port\": 30100}'").kv_port, 30100);
  const auto variable = scan_template(
      "KV_PORT='33500'\nvllm serve --pipeline-parallel-size 4 --prefill-context-parallel-size=8 \\\n"
      "\"kv_port\": \"'\"$KV_PORT\"'\",\n");
  EXPECT_EQ(variable.kv_port, 33500);
  EXPECT_EQ(variable.ranks_per_tp, 32);
  for (const char* unknown :
       {"", "\"kv_port\": \"$PORT\"", "KV_PORT=$((30000+$4))", "# \"kv_port\": 36000", "\"kv_port\": 360001",
        "KV_PORT='<DECODE_KV_PORT>'", "my_kv_port: 5000", "\"kv_port\": 3600x", "\"kv_port"}) {
    EXPECT_EQ(scan_template(unknown).kv_port, std::nullopt) << unknown;
  }
}

TEST(TemplateScan, ArgumentsThatNobodyPassesAreFound) {
  EXPECT_THAT(scan_template("a $1 ${7} $8 ${8} ${10} $8 ${9:-1} $").unknown, ElementsAre("$8", "${8}", "${10}"));
  EXPECT_TRUE(scan_template("a $1 $7 $# $@ ${#8}").unknown.empty());
}

TEST(PortRanges, OverlapsAreNamed) {
  auto options = guide();
  options.dp_rank_start = 0;
  auto plan = plan_launch(options).value();
  EXPECT_TRUE(check_port_ranges(port_ranges(plan, {.kv_port = 36000})).has_value());
  const auto overlap = check_port_ranges(port_ranges(plan, {.kv_port = 7110}));
  ASSERT_FALSE(overlap.has_value());
  EXPECT_THAT(overlap.error().message(), HasSubstr("7100 to 7115, overlap ports of the KV hand-off (kv_port 7110"));
  const auto rpc = check_port_ranges(port_ranges(plan, {.kv_port = 12320}));
  ASSERT_FALSE(rpc.has_value());
  EXPECT_THAT(rpc.error().message(), HasSubstr("--dp-rpc-port"));
  EXPECT_FALSE(check_port_ranges(port_ranges(plan, {.kv_port = 65000, .ranks_per_tp = 64})).has_value());
  // Rank 16's ports begin behind those of the ranks of the other host.
  plan = plan_launch(guide()).value();
  EXPECT_EQ(port_ranges(plan, {.kv_port = 36000})[1].first, 36016);
}

}  // namespace
}  // namespace baton::launcher
