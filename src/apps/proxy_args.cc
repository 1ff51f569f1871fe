#include "apps/proxy_args.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "net/client_name.h"

namespace baton::apps {
namespace {

struct Raw {
  std::string host = "localhost", log_level = "INFO", mode = "pull", forwarders;
  std::vector<std::string> api_keys;
  std::string tls_cert, tls_key, tls_ca, engine_cert, engine_key, engine_ca;
  bool engine_tls = false;
  int cert_reqs = 0;
  int port = 8000, workers = 1, max_retries = 3, max_waiting_retries = 3, max_in_flight = 4096;
  double retry_delay = 0.001, resume_wait = 10, waiting_retry_interval = 10, connect_timeout = 2, prefill_timeout = 600,
         first_token_timeout = 600, idle_timeout = 300, probe_interval = 0.5, probe_timeout = 1, drain_timeout = 30;
  int64_t max_body_bytes = 512ll * 1024 * 1024;
  std::vector<std::string> prefill_hosts = {"localhost"}, decode_hosts = {"localhost"};
  std::vector<int> prefill_ports = {8001}, decode_ports = {8002};
};

void describe_trust(CLI::App& app, Raw& raw) {
  app.add_option("--api-key", raw.api_keys, "Key that clients must send, one or several; passed on to the engines")
      ->expected(1, -1);
  app.add_option("--ssl-certfile", raw.tls_cert, "PEM certificate: serve over TLS");
  app.add_option("--ssl-keyfile", raw.tls_key, "Its PEM key");
  app.add_option("--ssl-ca-certs", raw.tls_ca, "PEM file of whom clients' certificates must come from");
  app.add_option("--ssl-cert-reqs", raw.cert_reqs, "0: clients need no certificate; 2: they do")
      ->check(CLI::IsMember({0, 2}));
  app.add_flag("--engine-ssl", raw.engine_tls, "Ask the engines over TLS; the next three imply it");
  app.add_option("--engine-ssl-ca-certs", raw.engine_ca, "PEM file of whom to trust; else the system's");
  app.add_option("--engine-ssl-certfile", raw.engine_cert, "PEM certificate shown to engines that ask for one");
  app.add_option("--engine-ssl-keyfile", raw.engine_key, "Its PEM key");
}

void describe(CLI::App& app, Raw& raw) {
  const auto port_range = CLI::Range(0, 65535);
  app.add_option("--host", raw.host, "Address to listen on")->capture_default_str();
  app.add_option("--port", raw.port, "Port to listen on")->check(port_range)->capture_default_str();
  app.add_option(
         "--mode", raw.mode,
         "pull: P first, D fetches its KV; layerwise: D first, P pushes layer by layer (MooncakeLayerwiseConnector)")
      ->check(CLI::IsMember({"pull", "layerwise"}))
      ->capture_default_str();
  app.add_option("--prefiller-hosts", raw.prefill_hosts, "Hosts of the prefill engines")->expected(1, -1);
  app.add_option("--prefiller-ports", raw.prefill_ports, "Their ports, as many")->expected(1, -1)->check(port_range);
  app.add_option("--decoder-hosts", raw.decode_hosts, "Hosts of the decode engines")->expected(1, -1);
  app.add_option("--decoder-ports", raw.decode_ports, "Their ports, as many")->expected(1, -1)->check(port_range);
  app.add_option("--max-retries", raw.max_retries, "Attempts per stage of a request")->check(CLI::Range(1, 100));
  app.add_option("--retry-delay", raw.retry_delay, "Base of the back-off, s")->check(CLI::Range(0.0, 60.0));
  app.add_option("--resume-wait", raw.resume_wait, "For a decode engine to be back amid a stream that lost its own, s")
      ->check(CLI::Range(0.0, 86400.0));
  app.add_option("--max-waiting-retries", raw.max_waiting_retries, "Intervals that an added instance may take")
      ->check(CLI::Range(1, 10000));
  app.add_option("--waiting-retry-interval", raw.waiting_retry_interval, "Such an interval, s")
      ->check(CLI::Range(0.01, 86400.0));
  app.add_option("--workers", raw.workers, "Accepted; one thread serves")->check(CLI::Range(1, 1024));
  app.add_option("--log-level", raw.log_level, "DEBUG, INFO, WARNING, ERROR or CRITICAL")
      ->check(CLI::IsMember({"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"}, CLI::ignore_case));
  describe_trust(app, raw);
  app.add_option("--max-in-flight", raw.max_in_flight,
                 "Requests at a time; beyond, or beyond a client's share of them: 429")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--forwarded-allow-ips", raw.forwarders,
                 "Addresses of proxies before this one whose X-Forwarded-For names the client; * for any")
      ->capture_default_str();
  app.add_option("--max-body-bytes", raw.max_body_bytes, "Largest request; beyond: 413")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  const auto seconds = CLI::Range(0.01, 1e6);
  app.add_option("--connect-timeout", raw.connect_timeout, "To an engine, s")->check(seconds);
  app.add_option("--prefill-timeout", raw.prefill_timeout, "For a prefill, s")->check(seconds);
  app.add_option("--first-token-timeout", raw.first_token_timeout, "For decode's answer to begin, s")->check(seconds);
  app.add_option("--idle-timeout", raw.idle_timeout, "Between pieces of a stream, s")->check(seconds);
  app.add_option("--probe-interval", raw.probe_interval, "Between health probes, s")->check(seconds);
  app.add_option("--probe-timeout", raw.probe_timeout, "For a health probe, s")->check(seconds);
  app.add_option("--drain-timeout", raw.drain_timeout, "For running requests after a stop, s")->check(seconds);
}

Result<std::vector<net::HostPort>> join(std::string_view what, const std::vector<std::string>& hosts,
                                        const std::vector<int>& ports) {
  if (hosts.size() != ports.size())
    return fail(Code::kInvalidArgument, "--{0}-hosts names {1} hosts and --{0}-ports {2} ports: give as many of each",
                what, hosts.size(), ports.size());
  std::vector<net::HostPort> joined;
  for (size_t i = 0; i < hosts.size(); ++i) {
    BATON_TRY_ASSIGN(auto parts, net::parse_host_port(hosts[i], ports[i]));
    if (parts.port != ports[i])
      return fail(Code::kInvalidArgument, "--{0}-hosts '{1}': the port belongs into --{0}-ports", what, hosts[i]);
    joined.push_back(std::move(parts));
  }
  return joined;
}

Duration seconds_of(double s) { return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s)); }

Result<void> take_trust(const Raw& raw, proxy::ProxyOptions& options) {
  if (raw.tls_cert.empty() && !(raw.tls_key.empty() && raw.tls_ca.empty() && raw.cert_reqs == 0))
    return fail(Code::kInvalidArgument, "--ssl-keyfile, --ssl-ca-certs and --ssl-cert-reqs want --ssl-certfile");
  if (raw.cert_reqs != 0 && raw.tls_ca.empty())
    return fail(Code::kInvalidArgument, "--ssl-cert-reqs {} wants --ssl-ca-certs", raw.cert_reqs);
  if (raw.engine_cert.empty() && !raw.engine_key.empty())
    return fail(Code::kInvalidArgument, "--engine-ssl-keyfile wants --engine-ssl-certfile");
  options.http.tls = {.cert_file = raw.tls_cert, .key_file = raw.tls_key};
  if (raw.cert_reqs != 0) options.http.tls.ca_file = raw.tls_ca;
  options.engine_tls = {.cert_file = raw.engine_cert, .key_file = raw.engine_key, .ca_file = raw.engine_ca};
  options.engines_over_tls = raw.engine_tls || options.engine_tls.enabled();
  options.api_keys = raw.api_keys;
  return {};
}

// A request would go round until the proxy is full. What names the same machine otherwise is not known here.
Result<void> check_not_itself(const proxy::ProxyOptions& options) {
  const auto& own = options.http.listen;
  for (const auto* const role : {&options.prefill, &options.decode}) {
    for (const auto& engine : *role) {
      if (engine.port == own.port && engine.host == own.host)
        return fail(Code::kInvalidArgument, "{}:{} is where the proxy itself listens, not an engine", own.host,
                    own.port);
    }
  }
  return {};
}

Result<ProxyArgs> to_args(const Raw& raw, std::string engine_api_key) {
  ProxyArgs args{.log_level = raw.log_level};
  auto& options = args.options;
  BATON_TRY_ASSIGN(options.prefill, join("prefiller", raw.prefill_hosts, raw.prefill_ports));
  BATON_TRY_ASSIGN(options.decode, join("decoder", raw.decode_hosts, raw.decode_ports));
  options.http.listen.host = raw.host;
  options.http.listen.port = raw.port;
  BATON_TRY(check_not_itself(options));
  options.http.max_body_bytes = static_cast<size_t>(raw.max_body_bytes);
  BATON_TRY(take_trust(raw, options));
  options.decode_first = raw.mode == "layerwise";
  options.retry = {.max_retries = raw.max_retries,
                   .retry_delay = seconds_of(raw.retry_delay),
                   .resume_wait = seconds_of(raw.resume_wait)};
  options.max_waiting_retries = raw.max_waiting_retries;
  options.waiting_retry_interval = seconds_of(raw.waiting_retry_interval);
  options.engine_api_key = std::move(engine_api_key);
  options.max_in_flight = raw.max_in_flight;
  options.forwarders = net::parse_forwarders(raw.forwarders);
  options.connect_timeout = seconds_of(raw.connect_timeout);
  options.prefill_timeout = seconds_of(raw.prefill_timeout);
  options.first_token_timeout = seconds_of(raw.first_token_timeout);
  options.idle_timeout = seconds_of(raw.idle_timeout);
  options.probe_interval = seconds_of(raw.probe_interval);
  options.probe_timeout = seconds_of(raw.probe_timeout);
  options.drain_timeout = seconds_of(raw.drain_timeout);
  if (raw.workers > 1) args.notice = "--workers is accepted and has no effect: one thread serves all connections";
  return args;
}

}  // namespace

Result<ProxyArgs> parse_proxy_args(std::vector<std::string> args, std::string engine_api_key) {
  CLI::App app("Serves OpenAI requests, each prefilled by one engine and decoded by another.", "baton proxy");
  Raw raw;
  try {
    describe(app, raw);
    std::ranges::reverse(args);  // as CLI11 wants it
    app.parse(args);
  } catch (const CLI::CallForHelp&) {
    return ProxyArgs{.help = app.help()};
  } catch (const CLI::ParseError& error) {
    return fail(Code::kInvalidArgument, "{} (see baton proxy --help)", error.what());
  }
  return to_args(raw, std::move(engine_api_key));
}

}  // namespace baton::apps
