// One request at a simulated engine, from its call to its last reply.
#pragma once

#include "proxy/request_plan.h"
#include "sim/engine_node.h"

namespace baton::sim {

using Json = proxy::Json;

struct EngineNode::Answer {
  CallPtr call;
  std::string id;
  bool stream = false;
  std::vector<TokenId> prompt, resumed, tokens;
  int64_t created = 0;
  bool opened = false;
};

}  // namespace baton::sim
