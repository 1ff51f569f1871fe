// `baton proxy`: OpenAI requests in, each prefilled by one engine and decoded by another.
//
// One thread: server, client, probes and all state live on the executor given, which must be run by one thread. The
// decisions are RequestFsm's and Instances'; this is their I/O.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "net/http_server.h"
#include "proxy/instances.h"
#include "proxy/request_fsm.h"

namespace baton::proxy {

struct ProxyOptions {
  net::HttpServerOptions http{.listen = {.host = "127.0.0.1", .port = 8000}};
  std::vector<net::HostPort> prefill, decode;
  RetryPolicy retry;
  HealthPolicy health;
  // D first, as the layerwise connector needs it: engines call POST /v1/metaserver of this proxy, so that
  // http.listen.host must be an address that they reach.
  bool decode_first = false;
  int max_waiting_retries = 3;  // an added instance is dropped when it did not answer for this many intervals
  Duration waiting_retry_interval = std::chrono::seconds(10);
  std::vector<std::string> api_keys;  // asked of clients; empty: none is asked
  // Engines are asked over TLS: `ca_file` is whom to trust (empty: the system's), and the certificate is the proxy's
  // own.
  bool engines_over_tls = false;
  net::TlsOptions engine_tls;
  std::string engine_api_key;           // sent to engines for clients that send none (OPENAI_API_KEY)
  std::vector<std::string> forwarders;  // see net/client_name.h
  int max_in_flight = 4096;             // generations; beyond: 429 with Retry-After
  Duration connect_timeout = std::chrono::seconds(2);
  Duration prefill_timeout = std::chrono::seconds(600);
  Duration first_token_timeout = std::chrono::seconds(600);  // D's answer; of a whole one: all of it
  Duration idle_timeout = std::chrono::seconds(300);         // between pieces of a stream
  Duration probe_interval = std::chrono::seconds(1);
  Duration probe_timeout = std::chrono::seconds(1);
  Duration drain_timeout = std::chrono::seconds(30);  // run_proxy: running requests after a stop
  std::string version = "0.1.0";
  bool allow_cors = true;  // answers a browser's preflight, as the engines do
};

struct ProxyState;

class ProxyServer {
 public:
  // Listens at once; serves and probes while the executor runs.
  static Result<std::unique_ptr<ProxyServer>> start(net::asio::any_io_executor executor, ProxyOptions options);
  ~ProxyServer();

  int port() const;
  int requests_in_flight() const;
  void stop_accepting();
  // Closes everything; what runs ends at its next wait.
  void close();

 private:
  friend Result<int> run_proxy(const ProxyOptions& options, std::stop_token stop);
  explicit ProxyServer(std::shared_ptr<ProxyState> state);
  std::shared_ptr<ProxyState> state_;
};

// Serves on the calling thread until `stop`, then lets running requests end. The process's exit code, or why it could
// not start.
Result<int> run_proxy(const ProxyOptions& options, std::stop_token stop);

}  // namespace baton::proxy
