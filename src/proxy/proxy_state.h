// What the proxy's coroutines share. Inner header of proxy; one thread.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/metrics.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "proxy/door.h"
#include "proxy/proxy_server.h"

namespace baton::proxy {

struct ProxyMetrics {
  explicit ProxyMetrics(MetricRegistry& registry);
  void count_end(const RequestFsm::Summary& summary, TimePoint begin, TimePoint end);
  void set_instances(const Instances& instances);
  MetricRegistry& registry;
  Gauge in_flight;
  Counter handoffs, colocated, client_gone, cut_streams, refused, aborts_sent, prompt_tokens, completion_tokens;
  Counter prefill_attempts, decode_attempts, failovers, resumes, recomputes, metaserver_calls;
  Histogram request_seconds, first_byte_seconds, prefill_seconds;
  std::set<std::string> shown_instances;
};

// D first: the prefill of one attempt of a request, which the calls of the metaserver for it wait for.
struct SidePrefill {
  explicit SidePrefill(net::asio::any_io_executor on) : wake(on) {}
  void finish(int with, std::string why) {
    status = with;
    message = std::move(why);
    wake.cancel();
  }
  int status = 0;  // 0: under way
  std::string message;
  net::asio::steady_timer wake;
  std::shared_ptr<net::HttpCancellation> call;
};
class MetaserverClient {
 public:
  virtual ~MetaserverClient() = default;
  // Starts the prefill, once for each key; null: no attempt of this request has the key. Shared: the request may end
  // before those who wait.
  virtual std::shared_ptr<SidePrefill> metaserver_called(const std::string& key, Json params) = 0;
};

struct ProxyState {
  ProxyState(net::asio::any_io_executor on, ProxyOptions with);

  net::asio::any_io_executor executor;
  ProxyOptions options;
  SteadyClock clock;
  MetricRegistry registry;
  ProxyMetrics metrics{registry};
  Instances instances;
  std::unique_ptr<net::HttpClient> client;
  std::unique_ptr<net::HttpServer> server;
  net::asio::steady_timer probe_timer;
  std::set<InstanceId> probing;
  Door door;
  std::string metaserver;                              // URL; empty: P first
  std::map<std::string, MetaserverClient*> announced;  // D first: running requests by key
  bool closed = false;

  // A request to an instance, with the proxy's connect timeout. Nothing when it is gone.
  std::optional<net::HttpClientRequest> request_to(InstanceId id, std::string method, std::string target) const;
};
using State = std::shared_ptr<ProxyState>;

net::Task<void> handle_generation(State state, net::HttpRequest& request, net::HttpResponder& responder);
// Every other route. `state` by value: the coroutine keeps it alive.
net::Task<void> handle_service(State state, net::HttpRequest& request, net::HttpResponder& responder);
// POST /v1/metaserver.
net::Task<void> handle_metaserver(State state, net::HttpRequest& request, net::HttpResponder& responder);
net::Task<void> probe_loop(State state);
net::HttpResponse cors_preflight();

// The headers that travel on to an engine (or back): no hop-by-hop ones.
net::HttpHeaders end_to_end(const net::HttpHeaders& headers);
net::HttpHeaders engine_headers(const ProxyState& state, const net::HttpHeaders& from_client);
net::HttpResponse json_response(int status, std::string body);
net::HttpResponse error_answer(int status, std::string_view type, std::string_view message);

}  // namespace baton::proxy
