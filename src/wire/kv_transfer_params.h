// kv_transfer_params: the JSON object that the proxy carries between the prefill and the decode engine, as in
// vLLM-Ascend's pull connectors and NixlConnector. Unknown members are kept and passed on.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace baton::wire {

struct KvTransferParams {
  bool do_remote_decode = false;   // to P: prefill, keep the KV, answer with params
  bool do_remote_prefill = false;  // to D: pull the KV described here
  // To D, layerwise: announce there, by POST, where P is to push the KV. `baton_offer_id` then names D's blocks to P.
  std::string metaserver;
  std::string remote_engine_id;
  std::string remote_request_id;
  std::string remote_host;
  int remote_port = 0;
  std::vector<std::vector<int32_t>> remote_block_ids;  // one list per KV group
  int64_t remote_num_prompt_tokens = 0;
  int remote_block_size = 0;
  std::optional<int32_t> last_token_id;  // the token P sampled: D's self-check
  // Baton's own: names the offer (guards against a reused request id), and the seed drawn where the client gave none.
  uint64_t baton_offer_id = 0;
  std::optional<uint64_t> baton_seed;
  double kv_lease_duration_s = 0;
  // A request that comes back: its prompt and what was generated of it. The last resume_output_count are outputs;
  // absent (vLLM-Ascend's proxies): all are taken for the prompt.
  std::vector<int32_t> resume_token_ids;
  std::optional<int64_t> resume_output_count;
  nlohmann::json other = nlohmann::json::object();

  // kInvalidArgument names the member that has the wrong type. Missing members and nulls keep their defaults.
  static Result<KvTransferParams> from_json(const nlohmann::json& object);
  nlohmann::json to_json() const;
};

}  // namespace baton::wire
