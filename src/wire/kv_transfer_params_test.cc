#include "wire/kv_transfer_params.h"

#include <gtest/gtest.h>

namespace baton::wire {
namespace {

using Json = nlohmann::json;

TEST(KvTransferParams, TheRequestThatThePublicProxySendsToP) {
  // Body member of vLLM-Ascend's load_balance_proxy_server_example.py (reference/pd_protocol.md 1.1).
  const auto params = KvTransferParams::from_json(
      Json::parse(R"({"do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": null,
                      "remote_block_ids": null, "remote_host": null, "remote_port": null})"));
  ASSERT_TRUE(params.has_value()) << params.error().to_string();
  EXPECT_TRUE(params->do_remote_decode);
  EXPECT_FALSE(params->do_remote_prefill);
  EXPECT_EQ(params->remote_port, 0);
  EXPECT_TRUE(params->remote_block_ids.empty());
}

TEST(KvTransferParams, TheAnswerOfPHasTheMembersOfTheConnectors) {
  KvTransferParams params;
  params.do_remote_prefill = true;
  params.remote_engine_id = "0";
  params.remote_request_id = "cmpl-1";
  params.remote_host = "::1";
  params.remote_port = 36000;
  params.remote_block_ids = {{3, 4}};
  params.remote_num_prompt_tokens = 17;
  params.remote_block_size = 16;
  params.last_token_id = 42;
  params.baton_offer_id = 0xFFFFFFFFFFFFFFFF;
  params.baton_seed = 7;
  params.kv_lease_duration_s = 30;
  params.other["remote_multi_nodes_meta_mapping"] = Json::object();
  const Json json = params.to_json();
  EXPECT_EQ(json, Json::parse(R"({
    "do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [[3, 4]], "remote_engine_id": "0",
    "remote_request_id": "cmpl-1", "remote_host": "::1", "remote_port": 36000, "remote_pcp_size": 1,
    "remote_dcp_size": 1, "remote_ptp_size": 1, "tp_size": 1, "dcp_size": 1, "pp_size": 1, "last_token_id": 42,
    "num_prompt_blocks": 2, "remote_block_size": 16, "remote_num_prompt_tokens": 17, "remote_num_tokens": 17,
    "transfer_mode": "pull", "kv_lease_version": 1, "kv_lease_duration": 30.0, "baton_offer_id": "ffffffffffffffff",
    "baton_seed": "0000000000000007", "remote_multi_nodes_meta_mapping": {}})"));
  const auto back = KvTransferParams::from_json(json);
  ASSERT_TRUE(back.has_value()) << back.error().to_string();
  EXPECT_EQ(back->to_json(), json);
  EXPECT_EQ(back->baton_offer_id, params.baton_offer_id);
  EXPECT_EQ(back->baton_seed, params.baton_seed);
}

TEST(KvTransferParams, UnknownMembersTravelOn) {
  const auto params = KvTransferParams::from_json(Json::parse(R"({"metaserver": "http://p/v1", "x": {"y": [1]}})"));
  ASSERT_TRUE(params.has_value());
  EXPECT_EQ(params->to_json()["x"]["y"][0], 1);
  EXPECT_EQ(params->to_json()["metaserver"], "http://p/v1");
}

TEST(KvTransferParams, FlatBlockListsAndTextPortsAreTaken) {
  const auto params =
      KvTransferParams::from_json(Json::parse(R"({"remote_block_ids": [1, 2], "remote_port": "36000"})"));
  ASSERT_TRUE(params.has_value());
  EXPECT_EQ(params->remote_block_ids, (std::vector<std::vector<int32_t>>{{1, 2}}));
  EXPECT_EQ(params->remote_port, 36000);
}

TEST(KvTransferParams, WrongTypesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"([])", "must be an object"},
      {R"({"do_remote_decode": 1})", "do_remote_decode"},
      {R"({"remote_engine_id": 4})", "remote_engine_id"},
      {R"({"remote_port": 65536})", "remote_port"},
      {R"({"remote_port": -1})", "remote_port"},
      {R"({"remote_port": "12x"})", "remote_port"},
      {R"({"remote_port": 1.5})", "remote_port"},
      {R"({"remote_block_ids": 3})", "remote_block_ids"},
      {R"({"remote_block_ids": [[1], 2]})", "remote_block_ids"},
      {R"({"remote_block_ids": [[18446744073709551615]]})", "remote_block_ids"},
      {R"({"remote_block_ids": [[-1]]})", "remote_block_ids"},
      {R"({"last_token_id": "a"})", "last_token_id"},
      {R"({"baton_offer_id": "xyz"})", "baton_offer_id"},
      {R"({"baton_offer_id": -3})", "baton_offer_id"},
      {R"({"baton_seed": "11112222333344445"})", "baton_seed"},
      {R"({"kv_lease_duration": "30"})", "kv_lease_duration"},
      {R"({"kv_lease_duration": 1e300})", "kv_lease_duration"},
  };
  for (const auto& [text, named] : cases) {
    const auto params = KvTransferParams::from_json(Json::parse(text));
    ASSERT_FALSE(params.has_value()) << text;
    EXPECT_EQ(params.error().code(), Code::kInvalidArgument);
    EXPECT_NE(params.error().message().find(named), std::string::npos) << params.error().message();
  }
}

TEST(KvTransferParams, TokensToResumeAreReadAndNotPassedOn) {
  auto params = KvTransferParams::from_json(
      Json{{"_vllm_ascend_recompute_token_ids", {4, 5, 6}}, {"baton_resume_output_count", 2}, {"x", 1}});
  ASSERT_TRUE(params);
  EXPECT_EQ(params->resume_token_ids, (std::vector<int32_t>{4, 5, 6}));
  EXPECT_EQ(params->resume_output_count, 2);
  EXPECT_EQ(params->other.dump(), R"({"x":1})");
  EXPECT_FALSE(params->to_json().contains("_vllm_ascend_recompute_token_ids"));
  const Json wrong[] = {{{"_vllm_ascend_recompute_token_ids", {4, -5}}},
                        {{"_vllm_ascend_recompute_token_ids", "4"}},
                        {{"_vllm_ascend_recompute_token_ids", {4}}, {"baton_resume_output_count", 1}},
                        {{"_vllm_ascend_recompute_token_ids", {4, 5}}, {"baton_resume_output_count", -1}}};
  for (const auto& each : wrong) {
    const auto refused = KvTransferParams::from_json(each);
    ASSERT_FALSE(refused) << each;
    EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace baton::wire
