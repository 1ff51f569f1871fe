// A grid that can't be must be refused before a weight is read, with the reason; one that can must be read as vLLM
// does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "apps/serve/own_address.h"
#include "apps/serve/topology_setup.h"

namespace baton::apps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Result<TopologySetup> topology_of(std::vector<std::string> flags, const Variables& variables = {}) {
  flags.insert(flags.begin(), "m");
  auto parsed = parse_arguments(flags);
  if (!parsed) return std::unexpected(parsed.error());
  return make_topology_setup(*parsed, [&](const char* name) -> std::string {
    const auto it = variables.find(name);
    return it == variables.end() ? "" : it->second;
  });
}

void expect_refused(const std::vector<std::string>& flags, const std::string& reason, const Variables& variables = {}) {
  const auto made = topology_of(flags, variables);
  ASSERT_FALSE(made.has_value()) << ::testing::PrintToString(flags);
  EXPECT_THAT(made.error().message(), HasSubstr(reason)) << ::testing::PrintToString(flags);
}

TEST(Topology, NoFlagsAreOneRank) {
  const auto made = topology_of({}).value();
  EXPECT_TRUE(made.one_rank());
  EXPECT_EQ(made.ranks_here(), 1);
  EXPECT_EQ(made.interleave, 0);
  EXPECT_EQ(made.own_address, "127.0.0.1");
  EXPECT_TRUE(made.warnings.empty());
}

TEST(Topology, SizesThatDoNotFitAreRefusedInVllmsWords) {
  expect_refused({"-tp", "4", "-dcp", "3"}, "tp_size=4 must be divisible by dcp_size=3.");
  expect_refused({"-tp", "0"}, "--tensor-parallel-size: 0 is not from 1");
  expect_refused({"-tp", "32"}, "--tensor-parallel-size 32: at most 16");
  expect_refused({"-tp", "16", "-pp", "128"}, "are 2048 ranks");
  expect_refused({"-n", "2", "-r", "2", "-pp", "2"}, "node_rank=2 must be less than nnodes=2.");
  expect_refused({"-n", "4", "-pp", "3"}, "world_size=3 must be divisible by nnodes=4.");
  expect_refused({"-n", "4", "-tp", "4"}, "spread one pipeline stage over hosts");
  expect_refused({"--headless"}, "--headless needs --nnodes greater than 1");
  expect_refused({"-n", "2", "-pp", "2", "--headless"}, "--headless is for --node-rank 1 and above");
  expect_refused({"-n", "2", "-pp", "2", "-r", "1"}, "--node-rank 1 needs --headless");
  expect_refused({"-n", "2", "-pp", "2", "-dp", "2"}, "a replica over several hosts stands alone");
  expect_refused({"--master-port", "80"}, "--master-port: 80 is not from 1024");
}

TEST(Topology, TheSecretOfTheMeetingIsReadFromEitherPlace) {
  EXPECT_EQ(topology_of({}).value().secret, "");
  EXPECT_EQ(topology_of({}, {{"BATON_SECRET", "a b"}}).value().secret, "a b");
  const std::vector<std::string> flag = {"--additional-config", R"({"baton_secret": "own"})"};
  EXPECT_EQ(topology_of(flag).value().secret, "own");
  EXPECT_EQ(topology_of(flag, {{"BATON_SECRET", "other"}}).value().secret, "own");
  expect_refused({"--additional-config", R"({"baton_secret": 7})"}, "baton_secret: a text is needed");
}

TEST(Topology, ReplicasAreRefusedInVllmsWords) {
  expect_refused({"-dp", "2", "-dpn", "2"}, "data_parallel_rank (2) must be in the range [0, 2)");
  expect_refused({"-dp", "4", "-dpn", "0", "-dpl", "2"}, "must be 1 or None when data_parallel_rank is set");
  expect_refused({"-dp", "2", "-dpl", "3"}, "data_parallel_size_local (3) must be <= data_parallel_size (2)");
  expect_refused({"-dp", "4", "-dpl", "2", "-dpr", "3"}, "end after --data-parallel-size 4");
  expect_refused({"-dp", "4", "--data-parallel-hybrid-lb"}, "data_parallel_size_local must be set");
  expect_refused({"-dp", "4", "--data-parallel-external-lb"}, "must be specified if data_parallel_external_lb");
  expect_refused({"-dp", "4", "-dpl", "2", "--data-parallel-hybrid-lb", "--data-parallel-external-lb"},
                 "cannot both be True");
  expect_refused({"-dp", "4", "-dpl", "2"}, "--data-parallel-hybrid-lb");
  expect_refused({"-dp", "2", "-dpl", "0"}, "an API server without an engine");
}

TEST(Topology, WhoBalancesFollowsFromTheFlagsAsInVllm) {
  struct Case {
    std::vector<std::string> flags;
    LoadBalance mode;
    int rank, local;
  };
  const std::vector<Case> cases{
      {{"-dp", "4"}, LoadBalance::kInternal, 0, 4},
      {{"-dp", "4", "-dpl", "4"}, LoadBalance::kInternal, 0, 4},
      {{"-dp", "4", "-dpl", "4", "--data-parallel-hybrid-lb"}, LoadBalance::kInternal, 0, 4},
      {{"-dp", "4", "-dpn", "3"}, LoadBalance::kExternal, 3, 1},
      {{"-dp", "4", "-dpn", "0", "-dpl", "1"}, LoadBalance::kExternal, 0, 1},
      {{"-dp", "4", "-dpl", "2", "-dpr", "2"}, LoadBalance::kHybrid, 2, 2},
      {{"-dp", "4", "-dpl", "2", "--data-parallel-hybrid-lb"}, LoadBalance::kHybrid, 0, 2},
      {{"-dp", "4", "-dpl", "1", "-dpr", "2"}, LoadBalance::kExternal, 2, 1},
      {{"-dpn", "0"}, LoadBalance::kExternal, 0, 1},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(::testing::PrintToString(one.flags));
    const auto made = topology_of(one.flags);
    ASSERT_TRUE(made.has_value()) << made.error().message();
    EXPECT_EQ(made->load_balance, one.mode);
    EXPECT_EQ(made->dp_rank, one.rank);
    EXPECT_EQ(made->dp_size_local, one.local);
  }
}

TEST(Topology, InterleaveKeepsTheLanesWhole) {
  EXPECT_EQ(topology_of({"-tp", "16", "-dcp", "16"}).value().interleave, 768);
  EXPECT_EQ(topology_of({"-pcp", "8", "--cp-kv-cache-interleave-size", "1536"}).value().interleave, 1536);
  EXPECT_EQ(topology_of({"-pcp", "2", "-tp", "2", "-dcp", "2", "--block-size", "3072"}).value().interleave, 3072);
  EXPECT_EQ(topology_of({"-pcp", "2", "--block-size", "16"}).value().interleave, 768);
  EXPECT_EQ(topology_of({"--cp-kv-cache-interleave-size", "5"}).value().interleave, 0);
  expect_refused({"-pcp", "2", "--cp-kv-cache-interleave-size", "1000"}, "must be a multiple of 768");
  expect_refused({"-pcp", "16", "--cp-kv-cache-interleave-size", "1536"}, "must divide 12288");
  expect_refused({"-pcp", "2", "--cp-kv-cache-interleave-size", "2304"}, "must divide 12288");
  expect_refused({"-pcp", "3"}, "1, 2, 4, 8 or 16 context ranks");
  expect_refused({"-pcp", "32"}, "1, 2, 4, 8 or 16 context ranks");
}

TEST(Topology, ABlockUnderContextParallelismIsTheInterleave) {
  auto alone = topology_of({}).value();
  EXPECT_EQ(topology_block_size(alone, std::nullopt, 16).value(), 16);
  EXPECT_EQ(topology_block_size(alone, 128, 16).value(), 128);
  auto context = topology_of({"-pcp", "4"}).value();
  EXPECT_EQ(topology_block_size(context, std::nullopt, 16).value(), 768);
  EXPECT_EQ(topology_block_size(context, 768, 16).value(), 768);
  EXPECT_TRUE(context.notes.empty());
  EXPECT_EQ(topology_block_size(context, 128, 16).value(), 768);
  ASSERT_EQ(context.notes.size(), 1u);
  EXPECT_THAT(context.notes.front(), HasSubstr("--block-size 128 is raised to 768"));
  const auto larger = topology_block_size(context, 1536, 16);
  ASSERT_FALSE(larger.has_value());
  EXPECT_THAT(larger.error().message(), HasSubstr("larger than --cp-kv-cache-interleave-size 768"));
}

TEST(Topology, TheGridIsThatOfTheFlags) {
  const auto sizes =
      grid_sizes(topology_of({"-dp", "4", "-dpn", "1", "-tp", "16", "-dcp", "16", "--enable-expert-parallel"},
                             {{"VLLM_HOST_IP", "192.0.2.1"}})
                     .value());
  EXPECT_EQ(sizes.text(), "dp4 pp1 pcp1 tp16 dcp16 ep");
  EXPECT_EQ(sizes.interleave, 768);
  EXPECT_TRUE(parallel::check_grid(sizes, {.layers = 93, .heads = 64, .experts = 384}).has_value());
}

TEST(Topology, DevicesAndTheirWarning) {
  const auto made = topology_of({"-tp", "4"}, {{"ASCEND_RT_VISIBLE_DEVICES", "4,6-7,12"}}).value();
  EXPECT_THAT(made.visible_devices, ElementsAre(4, 6, 7, 12));
  EXPECT_TRUE(made.warnings.empty());
  const auto fewer = topology_of({"-tp", "4"}, {{"BATON_VISIBLE_DEVICES", "0"}, {"ASCEND_RT_VISIBLE_DEVICES", "0-7"}});
  EXPECT_THAT(fewer.value().visible_devices, ElementsAre(0));
  ASSERT_EQ(fewer.value().warnings.size(), 1u);
  EXPECT_THAT(fewer.value().warnings.front(), HasSubstr("4 ranks run here on 1 visible devices"));
  for (const char* bad : {"a", "1,", ",1", "3-1", "1-", "-1", "1 2", "0-999999"}) {
    expect_refused({}, "is not a list of device numbers", {{"ASCEND_RT_VISIBLE_DEVICES", bad}});
  }
  expect_refused({}, "device 2 stands twice", {{"ASCEND_RT_VISIBLE_DEVICES", "1-3,2"}});
}

TEST(Topology, OwnAddressComesFromTheEnvironmentInOrder) {
  const std::vector<std::string> far{"-dp", "2", "-dpn", "1", "--data-parallel-address", "127.0.0.1"};
  const Variables all{{"VLLM_HOST_IP", "192.0.2.1"}, {"HCCL_IF_IP", "192.0.2.2"}, {"GLOO_SOCKET_IFNAME", "lo"}};
  EXPECT_EQ(topology_of(far, all).value().own_address, "192.0.2.1");
  EXPECT_EQ(topology_of(far, {{"HCCL_IF_IP", "192.0.2.2"}}).value().own_address, "192.0.2.2");
  EXPECT_EQ(topology_of(far, {{"GLOO_SOCKET_IFNAME", "no-such0,lo"}}).value().own_address, "127.0.0.1");
  EXPECT_EQ(topology_of(far).value().own_address, "127.0.0.1");
  expect_refused(far, "GLOO_SOCKET_IFNAME: no interface 'no-such0'", {{"GLOO_SOCKET_IFNAME", "no-such0"}});
  expect_refused({}, "VLLM_HOST_IP: 'here' is not a numeric address", {{"VLLM_HOST_IP", "here"}});
  // Nobody has to find a process that stands alone.
  const auto alone = topology_of({}, {{"GLOO_SOCKET_IFNAME", "no-such0"}}).value();
  EXPECT_EQ(alone.own_address, "127.0.0.1");
  EXPECT_EQ(alone.warnings.size(), 1u);
}

TEST(Topology, PartitionsOfStages) {
  const Variables seed{{"VLLM_PP_LAYER_PARTITION", "25,25,24,19"}};
  const auto made = topology_of({"-pp", "4"}, seed).value();
  EXPECT_THAT(made.layer_partition, ElementsAre(25, 25, 24, 19));
  expect_refused({"-pp", "2"}, "len(partitions)=4 does not match pp_size=2.", seed);
  expect_refused({"-pp", "2"}, "Invalid partition string: 1,x", {{"VLLM_PP_LAYER_PARTITION", "1,x"}});
  EXPECT_EQ(topology_of({}, seed).value().notes.size(), 1u);
}

TEST(Topology, OneTemplateServesAllReplicasOfAHost) {
  const auto topology = topology_of({"-dp", "4", "-dpn", "3", "-tp", "4", "-pp", "2"}).value();
  engine::EngineConfig config;
  config.seed = 1024;
  config.kv_transfer.role = engine::KvRole::kProducer;
  config.kv_transfer.engine_id = "0";
  config.kv_transfer.port = 30000;
  const auto third = config_of_replica(config, topology, 3).value();
  EXPECT_EQ(third.kv_transfer.engine_id, "0_dp3");
  EXPECT_EQ(third.kv_transfer.port, 30024);
  EXPECT_EQ(third.seed, 1027u);
  config.kv_transfer.port = 65530;
  EXPECT_FALSE(config_of_replica(config, topology, 3).has_value());
  config.kv_transfer.port = 30000;
  const auto node = topology_of({"-pp", "4", "-pcp", "2", "-tp", "2", "-n", "4", "-r", "3", "--headless"}).value();
  EXPECT_EQ(config_of_replica(config, node, 0).value().kv_transfer.port, 30012);
  EXPECT_EQ(config_of_replica(config, node, 0).value().kv_transfer.engine_id, "0");
  const auto alone = config_of_replica(config, topology_of({}).value(), 0).value();
  EXPECT_EQ(alone.kv_transfer.engine_id, "0");
  EXPECT_EQ(alone.seed, 1024u);
}

TEST(OwnAddress, InterfacesAndRoutes) {
  EXPECT_EQ(address_of_interface("lo").value(), "127.0.0.1");
  EXPECT_EQ(address_of_interface("=lo").value(), "127.0.0.1");
  EXPECT_THAT(address_of_interface("nope").error().message(), HasSubstr("lo (127.0.0.1)"));
  EXPECT_EQ(address_towards("127.0.0.1").value(), "127.0.0.1");
  EXPECT_FALSE(address_towards("no host").has_value());
  EXPECT_TRUE(is_numeric_address("::1"));
  EXPECT_FALSE(is_numeric_address("localhost"));
}

}  // namespace
}  // namespace baton::apps
