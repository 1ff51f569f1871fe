// The grids of the public guides (tests/data/cli/seeds.json) must come to what the guides' tables say they are.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/serve/topology_setup.h"

namespace baton::apps {
namespace {

using nlohmann::json;

// The guides' scripts add --headless on nodes above 0 alone; the collected command lines carry it with node 0. And they
// stand for $3 and $7 of the launcher with 2 and 8, where the guide of this model starts 4 replicas of as many
// tensor-parallel as context ranks.
std::vector<std::string> arguments_of(const json& one) {
  auto arguments = one["argv"].get<std::vector<std::string>>();
  arguments.erase(arguments.begin());
  std::erase(arguments, "--headless");
  const auto value_after = [&](const char* flag) -> std::string* {
    const auto it = std::find(arguments.begin(), arguments.end(), flag);
    return it == arguments.end() ? nullptr : &*(it + 1);
  };
  const std::string* context = value_after("--decode-context-parallel-size");
  if (context != nullptr && *context != "1") {
    *value_after("--tensor-parallel-size") = *context;
    *value_after("--data-parallel-size") = "4";
  }
  return arguments;
}

std::string grid_text(const TopologySetup& made) {
  return fmt::format("dp{} pp{} pcp{} tp{} dcp{} I{} {}", made.dp_size, made.pp, made.pcp, made.tp, made.dcp,
                     made.interleave, load_balance_name(made.load_balance));
}

TEST(TopologySeeds, EveryGuidesGridIsReadAsItsTableSaysIt) {
  std::ifstream file(std::string(BATON_SOURCE_DIR) + "/tests/data/cli/seeds.json");
  const json cases = json::parse(file)["cases"];
  ASSERT_EQ(cases.size(), 25u);
  std::map<std::string, int> grids;
  for (const auto& one : cases) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const auto parsed = parse_arguments(arguments_of(one));
    ASSERT_TRUE(parsed.has_value());
    auto made = make_topology_setup(*parsed, [](const char*) { return std::string(); });
    // The route to the guides' addresses is not what is asked here.
    if (!made && made.error().code() == Code::kNotFound) {
      made = make_topology_setup(*parsed, [](const char* name) {
        return std::string(std::string_view(name) == "VLLM_HOST_IP" ? "10.0.0.1" : "");
      });
    }
    ASSERT_TRUE(made.has_value()) << made.error().message();
    EXPECT_TRUE(made->expert_parallel);
    ++grids[grid_text(*made)];
    const std::optional<int> block =
        parsed->has("block-size") ? std::optional(std::stoi(parsed->value("block-size"))) : std::nullopt;
    const auto resolved = topology_block_size(*made, block, 16);
    ASSERT_TRUE(resolved.has_value()) << resolved.error().message();
    EXPECT_EQ(*resolved, block.value_or(16));
  }
  for (const auto& [grid, count] : grids) std::printf("%2d x %s\n", count, grid.c_str());
  // Kimi K3.1's key settings: A3 DP1 TP4 PP4 PCP4 to DP4 TP16 DCP16; 950DT DP1 TP1 PP4 PCP8 to DP4 TP8 DCP8.
  EXPECT_EQ(grids["dp1 pp4 pcp4 tp4 dcp1 I768 internal"], 2);
  EXPECT_EQ(grids["dp1 pp4 pcp8 tp1 dcp1 I1536 internal"], 3);
  EXPECT_EQ(grids["dp4 pp1 pcp1 tp16 dcp16 I768 external"], 3);
  EXPECT_EQ(grids["dp4 pp1 pcp1 tp8 dcp8 I1536 external"], 3);
  // Kimi-K2.6 on one node.
  EXPECT_EQ(grids["dp4 pp1 pcp1 tp4 dcp1 I0 internal"], 1);
}

}  // namespace
}  // namespace baton::apps
