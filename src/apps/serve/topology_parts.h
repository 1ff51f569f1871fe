// The parts of make_topology_setup, split by what they read. Inner to it.
#pragma once

#include "apps/serve/topology_setup.h"

namespace baton::apps {

inline constexpr int kMostReplicas = 1024;
inline constexpr int kMostRanksPerReplica = 1024;

// A whole number of the command line from `lowest` to `highest`; `fallback` where the flag is not given.
Result<int> size_of(const ParsedArgs& parsed, const char* name, int fallback, int lowest, int highest);
bool is_set(const ParsedArgs& parsed, const char* name);

// Each needs what those before it have set.
Result<void> set_grid(const ParsedArgs& parsed, TopologySetup& topology);
Result<void> set_interleave(const ParsedArgs& parsed, TopologySetup& topology);
Result<void> set_nodes(const ParsedArgs& parsed, TopologySetup& topology);
Result<void> set_replicas(const ParsedArgs& parsed, TopologySetup& topology);
// Devices, own address, layer partition, deadline of a step, secret.
Result<void> set_from_environment(const ReadEnvironment& environment, TopologySetup& topology);
// baton_secret of --additional-config, before that of the environment.
Result<void> set_secret(const ParsedArgs& parsed, TopologySetup& topology);

}  // namespace baton::apps
