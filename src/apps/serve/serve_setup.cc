#include "apps/serve/serve_setup.h"

#include <algorithm>
#include <random>

#include "apps/args/arg_values.h"
#include "apps/serve/scheduler_switches.h"
#include "net/client_name.h"
#include "transfer/peer_filter.h"

namespace baton::apps {
namespace {

using nlohmann::json;

int64_t human_or(const ParsedArgs& parsed, const char* name, int64_t fallback) {
  return parsed.has(name) ? *parse_human_int(parsed.value(name)) : fallback;
}
int int_or(const ParsedArgs& parsed, const char* name, int fallback) {
  return parsed.has(name) ? static_cast<int>(*parse_plain_int(parsed.value(name))) : fallback;
}
double float_or(const ParsedArgs& parsed, const char* name, double fallback) {
  return parsed.has(name) ? *parse_plain_float(parsed.value(name)) : fallback;
}
bool bool_or(const ParsedArgs& parsed, const char* name, bool fallback) {
  return parsed.has(name) ? parsed.value(name) == "true" : fallback;
}

Result<int> checked_int(const ParsedArgs& parsed, const char* name, int64_t fallback, int64_t lowest, int64_t highest) {
  const int64_t value = human_or(parsed, name, fallback);
  if (value < lowest || value > highest) {
    return fail(Code::kInvalidArgument, "argument --{}: {} is not from {} to {}", name, value, lowest, highest);
  }
  return static_cast<int>(value);
}

Result<int> checked_port(const ParsedArgs& parsed, const char* name, int fallback) {
  const int port = int_or(parsed, name, fallback);
  if (port < 1024 || port > 65535) {
    return fail(Code::kInvalidArgument, "argument --{}: port {} is not from 1024 to 65535", name, port);
  }
  return port;
}

// What the files say holds anyway; a name asks for one kind of checkpoint, and any other is refused.
Result<std::string> quantization_of(const ParsedArgs& parsed) {
  const std::string value = parsed.has("quantization") ? parsed.value("quantization") : "auto";
  if (value == "none" || value == "auto") return std::string();
  for (const char* known : {"ascend", "gguf", "fp8", "compressed-tensors"}) {
    if (value == known) return value;
  }
  return fail(Code::kUnimplemented,
              "argument --quantization: '{}' is not in this version of Baton; ascend, fp8, compressed-tensors and gguf "
              "are, and without the flag the checkpoint says",
              value);
}

// Seeds pass ports as text.
Result<int> port_of(const json& value) {
  if (value.is_number_integer() && value >= 0 && value <= 65535) return value.get<int>();
  if (value.is_string()) {
    const auto port = parse_plain_int(value.get<std::string>());
    if (port && *port >= 0 && *port <= 65535) return static_cast<int>(*port);
  }
  return fail(Code::kInvalidArgument, "--kv-transfer-config kv_port: {} is not a port", value.dump());
}

Result<engine::KvRole> role_of(const std::string& name) {
  if (name == "kv_producer") return engine::KvRole::kProducer;
  if (name == "kv_consumer") return engine::KvRole::kConsumer;
  if (name == "kv_both") return engine::KvRole::kBoth;
  return fail(Code::kInvalidArgument, "--kv-transfer-config kv_role '{}': use kv_producer, kv_consumer or kv_both",
              name);
}

Result<std::string> text_member(const json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return std::string();
  if (it->is_string()) return it->get<std::string>();
  if (it->is_number()) return it->dump();
  return fail(Code::kInvalidArgument, "--kv-transfer-config {}: {} is not a text", key, it->dump());
}

Result<bool> switch_member(const json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return false;
  if (it->is_boolean()) return it->get<bool>();
  return fail(Code::kInvalidArgument, "--kv-transfer-config {}: {} is neither true nor false", key, it->dump());
}

// Checked here, so that a wrong entry is known before the weights are read.
Result<std::vector<std::string>> peers_of(const json& extra) {
  std::vector<std::string> peers;
  const auto it = extra.find("baton_peers");
  if (it == extra.end() || it->is_null()) return peers;
  if (!it->is_array() || it->empty() || !std::ranges::all_of(*it, [](const json& one) { return one.is_string(); })) {
    return fail(Code::kInvalidArgument,
                "--kv-transfer-config baton_peers: {}: a list of addresses, networks or host names is needed",
                it->dump());
  }
  peers = it->get<std::vector<std::string>>();
  if (auto good = transfer::PeerFilter::parse(peers); !good) {
    return fail(good.error().with_context("--kv-transfer-config"));
  }
  return peers;
}

Result<wire::GridClaim> claim_of(const json& extra, const char* side) {
  wire::GridClaim claim;
  const auto it = extra.find(side);
  if (it == extra.end() || it->is_null()) return claim;
  for (const auto& [key, size] : {std::pair{"tp_size", &claim.tp}, std::pair{"pp_size", &claim.pp},
                                  std::pair{"pcp_size", &claim.pcp}, std::pair{"dcp_size", &claim.dcp}}) {
    const auto member = it->is_object() ? it->find(key) : it->end();
    if (it->is_object() && member == it->end()) continue;
    if (!it->is_object() || !member->is_number_integer() || *member < 1 || *member > 1024) {
      return fail(Code::kInvalidArgument,
                  "--kv-transfer-config kv_connector_extra_config.{} {}: sizes from 1 to 1024 are needed", side,
                  it->dump());
    }
    *size = member->get<int32_t>();
  }
  return claim;
}

std::string random_engine_id() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

// "recompute" or "fail", or one for each group: {"blocks": "recompute", "state": "fail"}.
Result<engine::LoadFailurePolicy> load_failure_policy_of(const json& config) {
  engine::LoadFailurePolicy policy;
  const auto given = config.find("kv_load_failure_policy");
  if (given == config.end() || given->is_null()) return policy;
  const json groups = given->is_object() ? *given : json{{"blocks", *given}, {"state", *given}};
  for (const auto& [group, value] : groups.items()) {
    const bool known = group == "blocks" || group == "state";
    if (!known || (value != "recompute" && value != "fail")) {
      return fail(Code::kInvalidArgument,
                  "--kv-transfer-config kv_load_failure_policy {}: use recompute or fail, or an object that says so of "
                  "blocks and state",
                  given->dump());
    }
    (group == "blocks" ? policy.recompute_blocks : policy.recompute_state) = value == "recompute";
  }
  return policy;
}

Result<engine::KvTransferConfig> kv_transfer_of(const json& value, const TopologySetup& topology,
                                                const ReadEnvironment& environment) {
  engine::KvTransferConfig config;
  BATON_TRY_ASSIGN(config.connector, text_member(value, "kv_connector"));
  BATON_TRY_ASSIGN(const std::string role, text_member(value, "kv_role"));
  if (config.connector.empty() && role.empty()) return config;
  if (config.connector != "MooncakeConnectorV1" && config.connector != "MooncakeConnectorV2" &&
      config.connector != "NixlConnector" && config.connector != "MooncakeLayerwiseConnector") {
    return fail(Code::kUnimplemented,
                "--kv-transfer-config kv_connector '{}': this version has the pull connector, under the names "
                "MooncakeConnectorV1, MooncakeConnectorV2 and NixlConnector, and MooncakeLayerwiseConnector",
                config.connector);
  }
  BATON_TRY_ASSIGN(config.role, role_of(role));
  if (config.connector == "MooncakeLayerwiseConnector" && config.role == engine::KvRole::kBoth) {
    return fail(Code::kInvalidArgument,
                "--kv-transfer-config: with MooncakeLayerwiseConnector kv_role is kv_producer or kv_consumer");
  }
  BATON_TRY_ASSIGN(config.engine_id, text_member(value, "engine_id"));
  if (config.engine_id.empty()) config.engine_id = random_engine_id();
  if (value.contains("kv_port")) {
    BATON_TRY_ASSIGN(config.port, port_of(value["kv_port"]));
    if (config.port != 0 && (config.port < 1024 || config.port > 65535)) {
      return fail(Code::kInvalidArgument, "--kv-transfer-config kv_port {}: not from 1024 to 65535", config.port);
    }
  }
  BATON_TRY_ASSIGN(config.host, text_member(value, "kv_ip"));
  if (config.host.empty()) config.host = topology.own_address;
  BATON_TRY_ASSIGN(config.on_load_failure, load_failure_policy_of(value));
  const json extra = value.value("kv_connector_extra_config", json::object());
  if (!extra.is_object()) {
    return fail(Code::kInvalidArgument, "--kv-transfer-config kv_connector_extra_config: not an object");
  }
  if (const auto it = extra.find("kv_lease_duration"); it != extra.end()) {
    if (!it->is_number() || it->get<double>() < 6 || it->get<double>() > 86400) {
      return fail(Code::kInvalidArgument, "--kv-transfer-config kv_lease_duration {}: seconds from 6 to 86400",
                  it->dump());
    }
    config.lease_s = it->get<double>();
  }
  BATON_TRY_ASSIGN(config.prefill_claim, claim_of(extra, "prefill"));
  BATON_TRY_ASSIGN(config.decode_claim, claim_of(extra, "decode"));
  BATON_TRY_ASSIGN(config.transport, text_member(extra, "baton_transport"));
  if (config.transport.empty()) config.transport = "auto";
  BATON_TRY_ASSIGN(config.secret, text_member(extra, "baton_secret"));
  if (config.secret.empty()) config.secret = environment("BATON_SECRET");
  BATON_TRY_ASSIGN(config.tls_cert, text_member(extra, "baton_tls_cert"));
  BATON_TRY_ASSIGN(config.tls_key, text_member(extra, "baton_tls_key"));
  BATON_TRY_ASSIGN(config.tls_ca, text_member(extra, "baton_tls_ca"));
  BATON_TRY_ASSIGN(config.peers, peers_of(extra));
  BATON_TRY_ASSIGN(config.allow_other_profile, switch_member(extra, "baton_allow_other_profile"));
  BATON_TRY_ASSIGN(config.allow_other_version, switch_member(extra, "baton_allow_other_version"));
  return config;
}

Result<std::string> indexer_dtype_of(const ParsedArgs& parsed) {
  if (!parsed.has("attention-config")) return "auto";
  const auto options = json::parse(parsed.value("attention-config"));
  const auto dtype = options.find("indexer_kv_dtype");
  if (dtype == options.end() || dtype->is_null()) return "auto";
  if (!dtype->is_string()) {
    return fail(Code::kInvalidArgument, "--attention-config indexer_kv_dtype {}: a name like int8 is needed",
                dtype->dump());
  }
  return dtype->get<std::string>();
}

// PYTHONHASHSEED=0 on every process is how deployments make prefix hashes agree.
Result<engine::EngineConfig> engine_config_of(const ParsedArgs& parsed, const ReadEnvironment& environment,
                                              TopologySetup& topology) {
  engine::EngineConfig config;
  BATON_TRY_ASSIGN(config.max_model_len, checked_int(parsed, "max-model-len", 0, -1, INT32_MAX));
  if (config.max_model_len == -1) config.max_model_len = 0;
  BATON_TRY_ASSIGN(config.max_num_batched_tokens, checked_int(parsed, "max-num-batched-tokens", 2048, 1, 1 << 20));
  BATON_TRY_ASSIGN(config.max_num_seqs,
                   checked_int(parsed, "max-num-seqs", std::min(128, config.max_num_batched_tokens), 1, 65536));
  if (config.max_num_batched_tokens < config.max_num_seqs) {
    return fail(Code::kInvalidArgument,
                "max_num_batched_tokens ({}) must be greater than or equal to max_num_seqs ({}).",
                config.max_num_batched_tokens, config.max_num_seqs);
  }
  std::optional<int> block_size;
  if (parsed.has("block-size")) {
    BATON_TRY_ASSIGN(block_size, checked_int(parsed, "block-size", 16, 1, 65536));
  }
  BATON_TRY_ASSIGN(config.block_size, topology_block_size(topology, block_size, 16));
  config.kv_cache_bytes = human_or(parsed, "kv-cache-memory-bytes", 0);
  if (config.kv_cache_bytes < 0) {
    return fail(Code::kInvalidArgument, "argument --kv-cache-memory-bytes: {} is negative", config.kv_cache_bytes);
  }
  config.memory_utilization = float_or(parsed, "gpu-memory-utilization", 0.9);
  if (!(config.memory_utilization > 0 && config.memory_utilization <= 1)) {
    return fail(Code::kInvalidArgument, "argument --gpu-memory-utilization: {} is not in (0, 1]",
                config.memory_utilization);
  }
  config.prefix_caching = bool_or(parsed, "enable-prefix-caching", true);
  if (parsed.has("kv-cache-dtype")) config.kv_cache_dtype = parsed.value("kv-cache-dtype");
  BATON_TRY_ASSIGN(config.indexer_cache_dtype, indexer_dtype_of(parsed));
  config.state_cache_bytes = human_or(parsed, "state-cache-memory-bytes", 0);
  if (config.state_cache_bytes < 0) {
    return fail(Code::kInvalidArgument, "argument --state-cache-memory-bytes: {} is negative",
                config.state_cache_bytes);
  }
  BATON_TRY_ASSIGN(config.state_snapshot_interval, checked_int(parsed, "state-snapshot-interval", 0, 0, INT32_MAX));
  const std::string policy = parsed.has("scheduling-policy") ? parsed.value("scheduling-policy") : "fcfs";
  if (policy != "fcfs" && policy != "priority") {
    return fail(Code::kInvalidArgument,
                "argument --scheduling-policy: invalid choice: '{}' (choose from fcfs, priority)", policy);
  }
  config.priority_scheduling = policy == "priority";
  BATON_TRY_ASSIGN(config.long_prefill_token_threshold,
                   checked_int(parsed, "long-prefill-token-threshold", 0, 0, INT32_MAX));
  BATON_TRY_ASSIGN(config.max_waiting_requests, checked_int(parsed, "max-waiting-requests", 4096, 1, 1 << 20));
  config.max_queue_s = float_or(parsed, "max-queue-seconds", 3600);
  if (!(config.max_queue_s >= 0 && config.max_queue_s <= 1e9)) {
    return fail(Code::kInvalidArgument, "argument --max-queue-seconds: {} is not from 0 to 1e9", config.max_queue_s);
  }
  config.hash_seed = environment("PYTHONHASHSEED");
  if (parsed.has("seed")) config.seed = static_cast<uint64_t>(*parse_plain_int(parsed.value("seed")));
  if (parsed.has("kv-transfer-config")) {
    BATON_TRY_ASSIGN(config.kv_transfer,
                     kv_transfer_of(json::parse(parsed.value("kv-transfer-config")), topology, environment));
  }
  const json additional =
      parsed.has("additional-config") ? json::parse(parsed.value("additional-config")) : json::object();
  BATON_TRY(set_schedulers(additional, int_or(parsed, "data-parallel-size", 1), environment, config));
  return config;
}

Result<void> set_tls(const ParsedArgs& parsed, net::HttpServerOptions& http) {
  http.tls.cert_file = parsed.value("ssl-certfile");
  http.tls.key_file = parsed.value("ssl-keyfile");
  if (http.tls.cert_file.empty() != http.tls.key_file.empty()) {
    return fail(Code::kInvalidArgument, "--ssl-certfile and --ssl-keyfile go together");
  }
  http.tls.verify_peer = int_or(parsed, "ssl-cert-reqs", 0) == 2;
  if (parsed.has("ssl-ca-certs")) http.tls.ca_file = parsed.value("ssl-ca-certs");
  if (http.tls.verify_peer && http.tls.ca_file.empty()) {
    return fail(Code::kInvalidArgument, "--ssl-cert-reqs 2 needs --ssl-ca-certs");
  }
  return {};
}

Result<net::HttpServerOptions> http_options_of(const ParsedArgs& parsed, bool as_vllm) {
  net::HttpServerOptions http;
  http.listen.host = parsed.has("host") ? parsed.value("host") : as_vllm ? "::" : "127.0.0.1";
  BATON_TRY_ASSIGN(http.listen.port, checked_port(parsed, "port", 8000));
  http.listen.unix_path = parsed.value("uds");
  BATON_TRY(set_tls(parsed, http));
  BATON_TRY_ASSIGN(http.max_header_bytes, checked_int(parsed, "h11-max-incomplete-event-size", 65536, 1024, 1 << 28));
  BATON_TRY_ASSIGN(http.max_header_count, checked_int(parsed, "h11-max-header-count", 256, 8, 65536));
  http.max_body_bytes = static_cast<size_t>(human_or(parsed, "max-request-bytes", int64_t{512} << 20));
  const int64_t buffered =
      human_or(parsed, "max-buffered-request-bytes", static_cast<int64_t>(http.max_body_bytes) * 4);
  if (buffered < static_cast<int64_t>(http.max_body_bytes)) {
    return fail(Code::kInvalidArgument, "argument --max-buffered-request-bytes: {} is less than one request's {}",
                buffered, http.max_body_bytes);
  }
  http.max_buffered_body_bytes = static_cast<size_t>(buffered);
  BATON_TRY_ASSIGN(http.max_connections, checked_int(parsed, "max-connections", 8192, 1, 1 << 20));
  return http;
}

Result<server::ServerOptions> server_options_of(const ParsedArgs& parsed, bool as_vllm,
                                                const ReadEnvironment& environment) {
  server::ServerOptions options;
  BATON_TRY_ASSIGN(options.http, http_options_of(parsed, as_vllm));
  if (const auto it = parsed.values.find("api-key"); it != parsed.values.end()) options.api_keys = it->second;
  if (const auto key = environment("VLLM_API_KEY"); options.api_keys.empty() && !key.empty()) options.api_keys = {key};
  options.forwarders =
      net::parse_forwarders(parsed.has("forwarded-allow-ips") ? parsed.value("forwarded-allow-ips") : "127.0.0.1");
  options.version = BATON_VERSION;
  options.limits.max_n = int_or(parsed, "max-waiting-requests", 4096);
  options.limits.max_logprobs = int_or(parsed, "max-logprobs", 20);
  if (parsed.has("response-role")) options.response_role = parsed.value("response-role");
  if (parsed.has("default-chat-template-kwargs")) {
    options.chat_template_kwargs = nlohmann::ordered_json::parse(parsed.value("default-chat-template-kwargs"));
    if (!options.chat_template_kwargs.is_object()) {
      return fail(Code::kInvalidArgument, "--default-chat-template-kwargs: a JSON object is needed");
    }
  }
  options.enable_auto_tool_choice = bool_or(parsed, "enable-auto-tool-choice", false);
  options.exclude_tools_when_tool_choice_none = bool_or(parsed, "exclude-tools-when-tool-choice-none", false);
  BATON_TRY_ASSIGN(options.output_format,
                   text::OutputFormat::make(parsed.value("reasoning-parser"), parsed.value("tool-call-parser")));
  if (options.enable_auto_tool_choice && !options.output_format.reads_tools()) {
    return fail(Code::kInvalidArgument, "--enable-auto-tool-choice requires --tool-call-parser");
  }
  options.enable_prompt_tokens_details = bool_or(parsed, "enable-prompt-tokens-details", false);
  options.enable_request_id_headers = bool_or(parsed, "enable-request-id-headers", false);
  options.force_include_usage = bool_or(parsed, "enable-force-include-usage", false);
  options.return_tokens_as_token_ids = bool_or(parsed, "return-tokens-as-token-ids", false);
  options.trust_request_chat_template = bool_or(parsed, "trust-request-chat-template", false);
  return options;
}

}  // namespace

Result<ServeSetup> make_serve_setup(const ParsedArgs& parsed, bool as_vllm, const ReadEnvironment& environment) {
  ServeSetup setup;
  BATON_TRY_ASSIGN(setup.topology, make_topology_setup(parsed, environment));
  BATON_TRY_ASSIGN(setup.engine, engine_config_of(parsed, environment, setup.topology));
  BATON_TRY_ASSIGN(setup.server, server_options_of(parsed, as_vllm, environment));
  setup.engine.max_logprobs = setup.server.limits.max_logprobs;
  BATON_TRY_ASSIGN(setup.threads, checked_int(parsed, "threads", 0, 0, 1024));
  setup.allow_onednn = bool_or(parsed, "onednn", true);
  BATON_TRY_ASSIGN(setup.quantization, quantization_of(parsed));
  setup.isa = tensor::detect_isa();
  if (parsed.has("isa")) {
    const auto isa = tensor::parse_isa(parsed.value("isa"));
    if (!isa || *isa > setup.isa) {
      return fail(Code::kInvalidArgument, "--isa {}: this machine runs {} and what is below (portable, avx2, avx512)",
                  parsed.value("isa"), tensor::isa_name(setup.isa));
    }
    setup.isa = *isa;
  }
  setup.chat_template_file = parsed.value("chat-template");
  setup.tokenizer_mode = parsed.value("tokenizer-mode");
  const std::string generation = parsed.has("generation-config") ? parsed.value("generation-config") : "auto";
  if (generation != "auto" && generation != "vllm") {
    return fail(Code::kUnimplemented, "--generation-config {}: auto or vllm", generation);
  }
  setup.use_generation_config = generation == "auto";
  if (parsed.has("override-generation-config")) {
    setup.generation_overrides = json::parse(parsed.value("override-generation-config"));
  }
  const double grace = float_or(parsed, "shutdown-timeout", 0);
  if (!(grace >= 0 && grace <= 1e6)) {
    return fail(Code::kInvalidArgument, "argument --shutdown-timeout: {} is not from 0 to 1000000 seconds", grace);
  }
  setup.shutdown_timeout = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(grace));
  const std::string name = parsed.model.value_or("");
  BATON_TRY_ASSIGN(setup.model_path, resolve_model(name, environment));
  const auto names = parsed.values.find("served-model-name");
  setup.server.served_model_names = names != parsed.values.end() ? names->second : std::vector<std::string>{name};
  setup.server.model_root = setup.model_path;
  return setup;
}

}  // namespace baton::apps
