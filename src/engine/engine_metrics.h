// The engine's metrics under vLLM's names. Any thread may read them; the engine thread writes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/metrics.h"
#include "engine/engine.h"
#include "engine/kv_budget.h"

namespace baton::engine {

// When a request passed each point; unset ones were not reached.
struct RequestTimes {
  TimePoint arrival;
  std::optional<TimePoint> scheduled, first_token, last_token;
};

struct FinishedRequest {
  RequestTimes times;
  TimePoint end;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t computed_prompt_tokens = 0;
  int max_tokens = 0;
  FinishReason reason = FinishReason::kStop;
};

class EngineMetrics {
 public:
  EngineMetrics(MetricRegistry& registry, const EngineConfig& config, KvCounts counts);

  // Gauges and counters that follow totals, once per step.
  void set_totals(const EngineStats& stats);
  void on_step(int64_t row_count, int64_t generated_tokens);
  // A prompt has been computed: where its tokens' KV came from.
  void on_prompt(int64_t prompt_tokens, int64_t cached_tokens, int64_t external_tokens);
  // A load ended: tokens asked of another engine, and those that came.
  void on_load(int64_t wanted_tokens, int64_t external_tokens);
  void on_tokens(const RequestTimes& before, TimePoint now);
  void on_finish(const FinishedRequest& request);
  void on_rejection() { admission_rejections_.add(); }

 private:
  void register_counters(MetricRegistry& registry);
  void register_histograms(MetricRegistry& registry, int max_model_len);

  Gauge running_, waiting_, waiting_capacity_, waiting_deferred_, kv_usage_, gpu_usage_, offers_held_;
  Gauge state_slots_held_, state_snapshots_;
  Counter preemptions_, prefix_queries_, prefix_hits_, gpu_prefix_queries_, gpu_prefix_hits_;
  Counter external_queries_, external_hits_;
  Counter prompt_tokens_, prompt_cached_, generation_tokens_, admission_rejections_;
  Counter from_compute_, from_cache_, from_transfer_;
  Counter mismatches_, transfer_failures_, recomputed_;
  std::array<Counter, 4> finished_;  // by FinishReason; one that leaves has not finished
  Histogram iteration_tokens_, ttft_, itl_, e2e_, queue_, prefill_, decode_, inference_, per_token_, per_token_old_;
  Histogram request_prompt_, request_generated_, request_max_tokens_, request_max_generated_, request_computed_;
};

}  // namespace baton::engine
