#include "apps/serve/topology_setup.h"

#include "apps/args/arg_values.h"
#include "apps/serve/topology_parts.h"

namespace baton::apps {

Result<int> size_of(const ParsedArgs& parsed, const char* name, int fallback, int lowest, int highest) {
  if (!parsed.has(name)) return fallback;
  const auto value = parse_plain_int(parsed.value(name));
  if (!value) return fail(invalid_value(name, "int", parsed.value(name)));
  if (*value < lowest || *value > highest) {
    return fail(Code::kInvalidArgument, "argument --{}: {} is not from {} to {}", name, *value, lowest, highest);
  }
  return static_cast<int>(*value);
}

bool is_set(const ParsedArgs& parsed, const char* name) { return parsed.value(name) == "true"; }

Result<void> set_grid(const ParsedArgs& parsed, TopologySetup& topology) {
  BATON_TRY_ASSIGN(topology.tp, size_of(parsed, "tensor-parallel-size", 1, 1, kMostRanksPerReplica));
  BATON_TRY_ASSIGN(topology.pp, size_of(parsed, "pipeline-parallel-size", 1, 1, kMostRanksPerReplica));
  BATON_TRY_ASSIGN(topology.pcp, size_of(parsed, "prefill-context-parallel-size", 1, 1, kMostRanksPerReplica));
  BATON_TRY_ASSIGN(topology.dcp, size_of(parsed, "decode-context-parallel-size", 1, 1, kMostRanksPerReplica));
  topology.expert_parallel = is_set(parsed, "enable-expert-parallel");
  if (topology.tp > parallel::kTensorRanksMax) {
    return fail(Code::kInvalidArgument, "--tensor-parallel-size {}: at most {} tensor-parallel ranks", topology.tp,
                parallel::kTensorRanksMax);
  }
  if (topology.tp % topology.dcp != 0) {
    return fail(Code::kInvalidArgument, "tp_size={} must be divisible by dcp_size={}.", topology.tp, topology.dcp);
  }
  const int64_t ranks = int64_t{topology.pp} * topology.pcp * topology.tp;
  if (ranks > kMostRanksPerReplica) {
    return fail(Code::kInvalidArgument,
                "pipeline {} * prefill context {} * tensor parallel size {} are {} ranks; a replica has at most {}",
                topology.pp, topology.pcp, topology.tp, ranks, kMostRanksPerReplica);
  }
  return {};
}

// 16 lanes of 768 positions are 12288: what one round over the context ranks must divide, so that each rank's tiles
// stand in whole lanes.
Result<void> set_interleave(const ParsedArgs& parsed, TopologySetup& topology) {
  constexpr int kSpan = parallel::kSpanTokens, kRound = parallel::kLanes * parallel::kSpanTokens;
  const int ranks = topology.context_ranks();
  BATON_TRY_ASSIGN(const int given, size_of(parsed, "cp-kv-cache-interleave-size", 0, 1, 1 << 24));
  if (ranks == 1) {
    if (given > 1) {
      topology.notes.push_back(fmt::format(
          "--cp-kv-cache-interleave-size {}: one context rank holds all positions, so nothing is interleaved", given));
    }
    return {};
  }
  topology.interleave = given;
  if (given == 0) {
    BATON_TRY_ASSIGN(const int block, size_of(parsed, "block-size", 0, 1, 65536));
    const bool follows = block > kSpan && block % kSpan == 0;
    topology.interleave = follows ? block : kSpan;
  }
  if (topology.interleave % kSpan != 0) {
    return fail(
        Code::kInvalidArgument,
        "--cp-kv-cache-interleave-size {}: with {} context ranks (prefill {} * decode {}) it must be a multiple "
        "of 768, the span whose attention is summed in one lane",
        topology.interleave, ranks, topology.pcp, topology.dcp);
  }
  if (int64_t{topology.interleave} * ranks > kRound || kRound % (topology.interleave * ranks) != 0) {
    return fail(
        Code::kInvalidArgument,
        "--cp-kv-cache-interleave-size {} * {} context ranks (prefill {} * decode {}) must divide 12288, the 16 "
        "lanes of attention: take {}",
        topology.interleave, ranks, topology.pcp, topology.dcp,
        16 % ranks == 0 ? "a smaller interleave" : "1, 2, 4, 8 or 16 context ranks");
  }
  return {};
}

Result<void> set_secret(const ParsedArgs& parsed, TopologySetup& topology) {
  if (!parsed.has("additional-config")) return {};
  const auto options = nlohmann::json::parse(parsed.value("additional-config"), nullptr, /*allow_exceptions=*/false);
  if (!options.is_object()) return {};
  const auto secret = options.find("baton_secret");
  if (secret == options.end() || secret->is_null()) return {};
  if (!secret->is_string()) return fail(Code::kInvalidArgument, "--additional-config baton_secret: a text is needed");
  topology.secret = secret->get<std::string>();
  return {};
}

std::string_view load_balance_name(LoadBalance mode) {
  switch (mode) {
    case LoadBalance::kInternal:
      return "internal";
    case LoadBalance::kExternal:
      return "external";
    case LoadBalance::kHybrid:
      return "hybrid";
  }
  return "";
}

Result<TopologySetup> make_topology_setup(const ParsedArgs& parsed, const ReadEnvironment& environment) {
  TopologySetup topology;
  BATON_TRY(set_grid(parsed, topology));
  BATON_TRY(set_interleave(parsed, topology));
  BATON_TRY(set_nodes(parsed, topology));
  BATON_TRY(set_replicas(parsed, topology));
  BATON_TRY(set_from_environment(environment, topology));
  BATON_TRY(set_secret(parsed, topology));
  return topology;
}

}  // namespace baton::apps
