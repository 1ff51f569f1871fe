// What the proxy counts, for /metrics.
#include <algorithm>

#include "proxy/proxy_state.h"

namespace baton::proxy {

ProxyMetrics::ProxyMetrics(MetricRegistry& with) : registry(with) {
  const auto counter = [&](const char* name, const char* help) { return registry.counter(name, help); };
  in_flight = registry.gauge("baton_proxy_requests_in_flight", "Generations being served");
  handoffs = counter("baton_proxy_handoffs_total", "Requests decoded from handed-over KV");
  colocated =
      counter("baton_proxy_colocated_total", "Requests that a decode engine prefilled for want of a prefill one");
  client_gone = counter("baton_proxy_client_gone_total", "Requests whose client left");
  cut_streams = counter("baton_proxy_cut_streams_total", "Streams that ended with an error event");
  refused = counter("baton_proxy_refused_total", "Requests refused at the limit of requests in flight");
  aborts_sent = counter("baton_proxy_prefill_aborts_total", "Times a prefill engine was told to drop a request's KV");
  prompt_tokens = counter("baton_proxy_prompt_tokens_total", "Prompt tokens, by the engines' usage");
  completion_tokens = counter("baton_proxy_completion_tokens_total", "Generated tokens, by the engines' usage");
  prefill_attempts = counter("baton_proxy_prefill_attempts_total", "Prefill calls");
  decode_attempts = counter("baton_proxy_decode_attempts_total", "Decode calls");
  failovers = counter("baton_proxy_failovers_total", "Calls beyond the first of their stage");
  resumes = counter("baton_proxy_resumes_total", "Answers that went on at another place from the tokens they had");
  recomputes = counter("baton_proxy_recomputed_total", "Of these, those that a decode engine had no room for");
  metaserver_calls = counter("baton_proxy_metaserver_calls_total", "Decode engines' calls of /v1/metaserver");
  hung_calls = counter("baton_proxy_hung_calls_total", "Calls given up because their engine left probes unanswered");
  const std::vector<double> buckets = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};
  request_seconds = registry.histogram("baton_proxy_request_seconds", "Whole requests", buckets);
  first_byte_seconds = registry.histogram("baton_proxy_first_byte_seconds", "Until the client's first byte", buckets);
  prefill_seconds = registry.histogram("baton_proxy_prefill_seconds", "Until prefill was answered", buckets);
}

void ProxyMetrics::count_end(const RequestFsm::Summary& summary, TimePoint begin, TimePoint end) {
  registry.counter("baton_proxy_requests_total", "Generations by status", {{"status", std::to_string(summary.status)}})
      .add();
  if (summary.handed_off && summary.status == 200) handoffs.add();
  if (summary.colocated) colocated.add();
  if (summary.status == 499) client_gone.add();
  if (summary.cut_after_first_byte) cut_streams.add();
  prefill_attempts.add(summary.prefill_attempts);
  decode_attempts.add(summary.decode_attempts);
  resumes.add(summary.resumes);
  recomputes.add(summary.recomputes);
  const int starts = 1 + summary.recomputes;
  failovers.add(std::max(0, summary.prefill_attempts - starts) + std::max(0, summary.decode_attempts - starts));
  if (summary.prompt_tokens > 0) prompt_tokens.add(static_cast<double>(summary.prompt_tokens));
  if (summary.completion_tokens > 0) completion_tokens.add(static_cast<double>(summary.completion_tokens));
  request_seconds.observe(seconds_between(begin, end));
  if (summary.first_byte_at) first_byte_seconds.observe(seconds_between(begin, *summary.first_byte_at));
  if (summary.prefilled_at) prefill_seconds.observe(seconds_between(begin, *summary.prefilled_at));
}

void ProxyMetrics::set_instances(const Instances& instances) {
  const auto gauge = [&](const char* name, const char* help, const std::string& role, const std::string& at) {
    return registry.gauge(name, help, {{"role", role}, {"instance", at}});
  };
  std::set<std::string> now_shown;
  for (const auto& each : instances.all()) {
    const std::string role = role_name(each.role), at = net::format_host_port(each.host, each.port);
    gauge("baton_proxy_instance_up", "1: chosen, 0: not", role, at)
        .set(each.health != Health::kDown && !each.draining && !each.join_by);
    gauge("baton_proxy_instance_in_flight", "Requests at the instance", role, at).set(each.in_flight);
    gauge("baton_proxy_instance_active_tokens", "Load score", role, at).set(each.active_tokens);
    now_shown.insert(role + " " + at);
  }
  for (const auto& key : shown_instances) {
    if (now_shown.contains(key)) continue;
    const auto space = key.find(' ');
    gauge("baton_proxy_instance_up", "1: chosen, 0: not", key.substr(0, space), key.substr(space + 1)).set(0);
  }
  shown_instances.insert(now_shown.begin(), now_shown.end());
}

}  // namespace baton::proxy
