// The report of `bench serve`: vLLM's console text and its result JSON, with the machine's limits added to both.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/arrivals.h"
#include "bench/metrics.h"

namespace baton::bench {

struct ReportOptions {
  std::string backend = "openai", label, model_id, tokenizer_id;
  int64_t num_prompts = 0;
  std::optional<int64_t> max_concurrency;
  ArrivalOptions arrivals;
  Goodput goodput;
  std::vector<std::string> metrics = {"ttft", "tpot", "itl"};  // of ttft, tpot, itl, e2el
  std::vector<double> percents = {99};
  std::vector<std::string> metadata;  // "key=value"
  bool detailed = false;
};

// The block from "=== Serving Benchmark Result ===" on.
std::string serve_report_text(const ServeMetrics& metrics, const ReportOptions& options);
// `date`: "20260131-235959".
nlohmann::ordered_json serve_report_json(const ServeMetrics& metrics, std::span<const RequestRecord> records,
                                         const ReportOptions& options, const std::string& date);
// "openai-infqps-concurrency8-model-20260131-235959.json".
std::string result_file_name(const ReportOptions& options, const std::string& date);
Result<void> check_report_options(const ReportOptions& options);
// "99" for 99, "99.9" for 99.9.
std::string percent_word(double percent);
// A line "=====text=====" of 50 characters.
std::string heading(const std::string& text, char fill);

}  // namespace baton::bench
