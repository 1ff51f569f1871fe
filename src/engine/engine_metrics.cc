#include "engine/engine_metrics.h"

#include <algorithm>
#include <string>
#include <vector>

namespace baton::engine {
namespace {

const std::vector<double> kSeconds{.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                   30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const std::vector<double> kFirstToken{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                      1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const std::vector<double> kBetweenTokens{.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                         .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const std::vector<double> kIterationTokens{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

// 1, 2, 5, 10, 20, 50, ... while at most `maximum`.
std::vector<double> one_two_five(int maximum) {
  std::vector<double> buckets;
  for (double decade = 1;; decade *= 10) {
    for (const double digit : {1, 2, 5}) {
      if (digit * decade > maximum) return buckets;
      buckets.push_back(digit * decade);
    }
  }
}

// A counter that follows a total kept elsewhere.
void raise_to(Counter& counter, int64_t total) {
  counter.add(std::max(0.0, static_cast<double>(total) - counter.value()));
}

}  // namespace

EngineMetrics::EngineMetrics(MetricRegistry& registry, const EngineConfig& config, KvCounts counts) {
  running_ = registry.gauge("vllm:num_requests_running", "Number of requests in model execution batches.");
  waiting_ = registry.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.");
  const std::string by_reason = "vllm:num_requests_waiting_by_reason";
  const std::string by_reason_help = "Number of waiting requests: for room, or for KV from another engine.";
  waiting_capacity_ = registry.gauge(by_reason, by_reason_help, {{"reason", "capacity"}});
  waiting_deferred_ = registry.gauge(by_reason, by_reason_help, {{"reason", "deferred"}});
  kv_usage_ = registry.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.");
  gpu_usage_ = registry.gauge("vllm:gpu_cache_usage_perc", "KV-cache usage, under its former name.");
  offers_held_ = registry.gauge("baton:kv_offers_held", "Finished requests whose KV is kept for a decode engine.");
  if (counts.slots > 0) {
    state_slots_held_ = registry.gauge("baton:state_slots_held", "Slots of recurrent state held by requests.");
    state_snapshots_ = registry.gauge("baton:state_snapshots", "Prefixes whose recurrent state is kept.");
  }
  registry
      .gauge("vllm:cache_config_info", "Information of the KV cache's configuration.",
             {{"block_size", std::to_string(config.block_size)},
              {"num_gpu_blocks", std::to_string(counts.blocks)},
              {"cache_dtype", config.kv_cache_dtype},
              {"enable_prefix_caching", config.prefix_caching ? "True" : "False"},
              {"gpu_memory_utilization", fmt::format("{}", config.memory_utilization)}})
      .set(1);
  register_counters(registry);
  register_histograms(registry, config.max_model_len);
}

void EngineMetrics::register_counters(MetricRegistry& registry) {
  preemptions_ = registry.counter("vllm:num_preemptions_total", "Cumulative number of preemptions.");
  prefix_queries_ = registry.counter("vllm:prefix_cache_queries_total", "Prefix cache queries, in tokens.");
  prefix_hits_ = registry.counter("vllm:prefix_cache_hits_total", "Prefix cache hits, in tokens.");
  gpu_prefix_queries_ = registry.counter("vllm:gpu_prefix_cache_queries_total", "prefix_cache_queries' former name.");
  gpu_prefix_hits_ = registry.counter("vllm:gpu_prefix_cache_hits_total", "prefix_cache_hits' former name.");
  external_queries_ = registry.counter("vllm:external_prefix_cache_queries_total",
                                       "Prompt tokens for which KV of another engine was offered.");
  external_hits_ =
      registry.counter("vllm:external_prefix_cache_hits_total", "Prompt tokens whose KV came from another engine.");
  prompt_tokens_ = registry.counter("vllm:prompt_tokens_total", "Number of prefill tokens processed.");
  prompt_cached_ = registry.counter("vllm:prompt_tokens_cached_total", "Prompt tokens whose KV was not computed here.");
  generation_tokens_ = registry.counter("vllm:generation_tokens_total", "Number of generation tokens processed.");
  admission_rejections_ = registry.counter("vllm:admission_rejections_total", "Requests refused because of the bound.");
  const std::string by_source = "vllm:prompt_tokens_by_source_total";
  const std::string by_source_help = "Prompt tokens by where their KV came from.";
  from_compute_ = registry.counter(by_source, by_source_help, {{"source", "local_compute"}});
  from_cache_ = registry.counter(by_source, by_source_help, {{"source", "local_cache_hit"}});
  from_transfer_ = registry.counter(by_source, by_source_help, {{"source", "external_kv_transfer"}});
  mismatches_ = registry.counter("baton:last_token_mismatches_total",
                                 "First tokens that differ from the prefill engine's. Must stay 0.");
  transfer_failures_ = registry.counter("baton:kv_transfer_failures_total", "Hand-offs that stopped short.");
  recomputed_ = registry.counter("baton:recomputed_requests_total",
                                 "Running requests without a free block that left, to be prefilled elsewhere.");
  const std::array<std::string, 4> reasons{"stop", "length", "abort", "error"};
  for (size_t i = 0; i < reasons.size(); ++i) {
    finished_[i] = registry.counter("vllm:request_success_total", "Count of finished requests.",
                                    {{"finished_reason", reasons[i]}});
  }
}

void EngineMetrics::register_histograms(MetricRegistry& registry, int max_model_len) {
  const auto seconds = [&](const char* name, const char* help) { return registry.histogram(name, help, kSeconds); };
  const auto tokens = [&](const char* name, const char* help) {
    return registry.histogram(name, help, one_two_five(max_model_len));
  };
  iteration_tokens_ =
      registry.histogram("vllm:iteration_tokens_total", "Number of tokens per engine step.", kIterationTokens);
  ttft_ = registry.histogram("vllm:time_to_first_token_seconds", "Time to first token in seconds.", kFirstToken);
  itl_ = registry.histogram("vllm:inter_token_latency_seconds", "Inter-token latency in seconds.", kBetweenTokens);
  per_token_old_ =
      registry.histogram("vllm:time_per_output_token_seconds", "inter_token_latency's former name.", kBetweenTokens);
  per_token_ = registry.histogram("vllm:request_time_per_output_token_seconds",
                                  "Time per output token of a request, after its first.", kBetweenTokens);
  e2e_ = seconds("vllm:e2e_request_latency_seconds", "End-to-end request latency in seconds.");
  queue_ = seconds("vllm:request_queue_time_seconds", "Time spent in WAITING phase.");
  prefill_ = seconds("vllm:request_prefill_time_seconds", "Time spent in PREFILL phase.");
  decode_ = seconds("vllm:request_decode_time_seconds", "Time spent in DECODE phase.");
  inference_ = seconds("vllm:request_inference_time_seconds", "Time spent in RUNNING phase.");
  request_prompt_ = tokens("vllm:request_prompt_tokens", "Number of prefill tokens processed.");
  request_generated_ = tokens("vllm:request_generation_tokens", "Number of generation tokens processed.");
  request_max_generated_ = tokens("vllm:request_max_num_generation_tokens", "Most generation tokens of a request.");
  request_max_tokens_ = tokens("vllm:request_params_max_tokens", "The max_tokens request parameter.");
  request_computed_ =
      tokens("vllm:request_prefill_kv_computed_tokens", "Prompt tokens whose KV was computed, not found or received.");
}

void EngineMetrics::set_totals(const EngineStats& stats) {
  running_.set(static_cast<double>(stats.running));
  waiting_.set(static_cast<double>(stats.waiting));
  waiting_capacity_.set(static_cast<double>(stats.waiting - stats.loading));
  waiting_deferred_.set(static_cast<double>(stats.loading));
  const double usage = stats.kv_blocks_total > 0
                           ? static_cast<double>(stats.kv_blocks_used) / static_cast<double>(stats.kv_blocks_total)
                           : 0;
  kv_usage_.set(usage);
  gpu_usage_.set(usage);
  offers_held_.set(static_cast<double>(stats.offers_held));
  if (stats.state_slots_total > 0) {
    state_slots_held_.set(static_cast<double>(stats.state_slots_held));
    state_snapshots_.set(static_cast<double>(stats.state_snapshots));
  }
  raise_to(preemptions_, stats.preemptions);
  raise_to(prefix_queries_, stats.prefix_queries);
  raise_to(prefix_hits_, stats.prefix_hits);
  raise_to(gpu_prefix_queries_, stats.prefix_queries);
  raise_to(gpu_prefix_hits_, stats.prefix_hits);
  raise_to(mismatches_, stats.last_token_mismatches);
  raise_to(transfer_failures_, stats.transfer_failures);
  raise_to(recomputed_, stats.recomputed);
}

void EngineMetrics::on_step(int64_t row_count, int64_t generated_tokens) {
  iteration_tokens_.observe(static_cast<double>(row_count));
  generation_tokens_.add(static_cast<double>(generated_tokens));
}

void EngineMetrics::on_prompt(int64_t prompt_tokens, int64_t cached_tokens, int64_t external_tokens) {
  prompt_tokens_.add(static_cast<double>(prompt_tokens));
  prompt_cached_.add(static_cast<double>(cached_tokens + external_tokens));
  from_compute_.add(static_cast<double>(std::max<int64_t>(prompt_tokens - cached_tokens - external_tokens, 0)));
  from_cache_.add(static_cast<double>(cached_tokens));
  from_transfer_.add(static_cast<double>(external_tokens));
}

void EngineMetrics::on_load(int64_t wanted_tokens, int64_t external_tokens) {
  external_queries_.add(static_cast<double>(wanted_tokens));
  external_hits_.add(static_cast<double>(external_tokens));
}

void EngineMetrics::on_tokens(const RequestTimes& before, TimePoint now) {
  if (!before.last_token) {
    ttft_.observe(seconds_between(before.arrival, now));
    return;
  }
  itl_.observe(seconds_between(*before.last_token, now));
  per_token_old_.observe(seconds_between(*before.last_token, now));
}

void EngineMetrics::on_finish(const FinishedRequest& request) {
  if (request.reason == FinishReason::kRecomputed) return;
  finished_[static_cast<size_t>(request.reason)].add();
  const auto& times = request.times;
  e2e_.observe(seconds_between(times.arrival, request.end));
  request_prompt_.observe(static_cast<double>(request.prompt_tokens));
  request_generated_.observe(static_cast<double>(request.generated_tokens));
  request_max_generated_.observe(static_cast<double>(request.generated_tokens));
  request_max_tokens_.observe(request.max_tokens);
  request_computed_.observe(static_cast<double>(request.computed_prompt_tokens));
  if (!times.scheduled) return;
  queue_.observe(seconds_between(times.arrival, *times.scheduled));
  if (!times.first_token) return;
  prefill_.observe(seconds_between(*times.scheduled, *times.first_token));
  decode_.observe(seconds_between(*times.first_token, *times.last_token));
  inference_.observe(seconds_between(*times.scheduled, *times.last_token));
  if (request.generated_tokens < 2) return;
  per_token_.observe(seconds_between(*times.first_token, *times.last_token) /
                     static_cast<double>(request.generated_tokens - 1));
}

}  // namespace baton::engine
