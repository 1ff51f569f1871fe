// What a client may have seen at the end.
#pragma once

#include "sim/proxy_node.h"

namespace baton::sim {

// The tokens that an engine alone, without any fault, gives to a request.
class Reference {
 public:
  explicit Reference(const Scenario& scenario);
  struct Expected {
    std::vector<TokenId> tokens;
    std::string finish;
  };
  Expected tokens_of(const ClientPlan& client, uint64_t seed);

 private:
  ComputePool pool_{{.threads = 1, .spin_us = 0}};
  MetricRegistry registry_;
  ManualClock clock_;
  std::unique_ptr<engine::EngineCore> core_;
  int count_ = 0;
};

// Counts the outcome; violations go to the world.
void check_client(World& world, const ClientPlan& client, const ClientView& view, const std::set<uint64_t>& seeds,
                  Reference& reference, RunCounts& counts);

}  // namespace baton::sim
