// The simulated proxy: its real request machine and instance table, with calls, timers and clients as events. What
// generation_driver.cc does with coroutines is done here.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "proxy/request_fsm.h"
#include "sim/engine_node.h"

namespace baton::sim {

// What a client has seen.
struct ClientView {
  std::vector<std::string> events;  // of a stream
  bool stream_ended = false;
  std::optional<net::HttpResponse> response;
  bool left = false;
  bool over() const { return left || stream_ended || response.has_value(); }
};

class ProxyNode {
 public:
  ProxyNode(World& world, const std::map<std::string, std::unique_ptr<EngineNode>>& engines);
  ~ProxyNode();

  void start();
  void begin(const ClientPlan& client);
  bool all_over() const;
  const ClientView& view(int client) const { return views_.at(client); }
  RunCounts counts() const;
  // Empty, or what is still charged to instances.
  std::string leftovers() const;

 private:
  class Request;
  void probe_all();
  void probe(proxy::InstanceId id);
  EngineNode* engine(proxy::InstanceId id);

  World& world_;
  const std::map<std::string, std::unique_ptr<EngineNode>>& engines_;
  Process process_;
  proxy::Instances instances_;
  std::map<int, ClientView> views_;
  std::vector<std::unique_ptr<Request>> requests_;
};

}  // namespace baton::sim
