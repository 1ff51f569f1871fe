#include "bench/report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace baton::bench {
namespace {

using Json = nlohmann::ordered_json;

struct MetricWords {
  const char* key;
  const char* name;
  const char* title;
  Distribution ServeMetrics::* member;
};
constexpr MetricWords kMetrics[] = {
    {"ttft", "TTFT", "Time to First Token", &ServeMetrics::ttft},
    {"tpot", "TPOT", "Time per Output Token (excl. 1st token)", &ServeMetrics::tpot},
    {"itl", "ITL", "Inter-token Latency", &ServeMetrics::itl},
    {"e2el", "E2EL", "End-to-end Latency", &ServeMetrics::e2el},
};

bool wants(const ReportOptions& options, const char* key) {
  return std::ranges::find(options.metrics, key) != options.metrics.end();
}

std::string whole(const char* name, int64_t value) { return fmt::format("{:<40} {:<10}\n", name, value); }
std::string real(const std::string& name, double value) { return fmt::format("{:<40} {:<10.2f}\n", name, value); }

// A number as JSON has it, "inf" where it has none.
Json finite(double value) { return std::isfinite(value) ? Json(value) : Json("inf"); }
std::string rate_word(double rate) {
  if (!std::isfinite(rate)) return "inf";
  return rate == std::floor(rate) && std::abs(rate) < 1e15 ? fmt::format("{:.1f}", rate) : fmt::format("{}", rate);
}

void add_details(Json& json, std::span<const RequestRecord> records) {
  for (const char* key : {"input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors"}) {
    json[key] = Json::array();
  }
  for (const auto& record : records) {
    json["input_lens"].push_back(record.prompt_tokens);
    json["output_lens"].push_back(record.success ? record.output_tokens : 0);
    json["ttfts"].push_back(record.ttft_s);
    json["itls"].push_back(record.itl_s);
    json["start_times"].push_back(record.start_s);
    json["generated_texts"].push_back(record.text);
    json["errors"].push_back(record.error);
  }
}

}  // namespace

std::string heading(const std::string& text, char fill) {
  const size_t room = text.size() < 50 ? 50 - text.size() : 0;
  return std::string(room / 2, fill) + text + std::string(room - room / 2, fill) + "\n";
}

std::string percent_word(double percent) {
  return percent == std::floor(percent) ? fmt::format("{:.0f}", percent) : fmt::format("{}", percent);
}

std::string serve_report_text(const ServeMetrics& metrics, const ReportOptions& options) {
  std::string text = heading(" Serving Benchmark Result ", '=');
  text += whole("Successful requests:", metrics.completed);
  text += whole("Failed requests:", metrics.failed);
  if (metrics.interrupted > 0) text += whole("Interrupted requests:", metrics.interrupted);
  if (options.max_concurrency) text += whole("Maximum request concurrency:", *options.max_concurrency);
  if (std::isfinite(options.arrivals.rate)) text += real("Request rate configured (RPS):", options.arrivals.rate);
  text += real("Benchmark duration (s):", metrics.duration_s);
  text += whole("Total input tokens:", metrics.input_tokens);
  text += whole("Total generated tokens:", metrics.output_tokens);
  text += real("Request throughput (req/s):", metrics.request_throughput);
  if (!options.goodput.empty()) text += real("Request goodput (req/s):", metrics.request_goodput);
  text += real("Output token throughput (tok/s):", metrics.output_throughput);
  text += real("Peak output token throughput (tok/s):", metrics.peak_output_per_s);
  text += real("Peak concurrent requests:", static_cast<double>(metrics.peak_concurrent));
  text += real("Total token throughput (tok/s):", metrics.total_throughput);
  for (const auto& metric : kMetrics) {
    if (!wants(options, metric.key)) continue;
    const Distribution& values = metrics.*metric.member;
    text += heading(metric.title, '-');
    text += real(fmt::format("Mean {} (ms):", metric.name), values.mean);
    text += real(fmt::format("Median {} (ms):", metric.name), values.median);
    for (size_t i = 0; i < options.percents.size(); ++i) {
      text += real(fmt::format("P{} {} (ms):", percent_word(options.percents[i]), metric.name), values.percentiles[i]);
    }
  }
  return text + std::string(50, '=') + "\n";
}

Json serve_report_json(const ServeMetrics& metrics, std::span<const RequestRecord> records,
                       const ReportOptions& options, const std::string& date) {
  Json json;
  json["date"] = date;
  json["endpoint_type"] = json["backend"] = options.backend;
  json["label"] = options.label.empty() ? Json() : Json(options.label);
  json["model_id"] = options.model_id;
  json["tokenizer_id"] = options.tokenizer_id;
  json["num_prompts"] = options.num_prompts;
  for (const auto& item : options.metadata) {
    const size_t equals = item.find('=');
    json[item.substr(0, equals)] = item.substr(equals + 1);
  }
  json["request_rate"] = finite(options.arrivals.rate);
  json["burstiness"] = finite(options.arrivals.burstiness);
  json["max_concurrency"] = options.max_concurrency ? Json(*options.max_concurrency) : Json();
  if (!options.arrivals.ramp.empty()) {
    json["ramp_up_strategy"] = options.arrivals.ramp;
    json["ramp_up_start_rps"] = options.arrivals.ramp_start_rps;
    json["ramp_up_end_rps"] = options.arrivals.ramp_end_rps;
  }
  json["duration"] = metrics.duration_s;
  json["completed"] = metrics.completed;
  json["failed"] = metrics.failed;
  json["total_input_tokens"] = metrics.input_tokens;
  json["total_output_tokens"] = metrics.output_tokens;
  json["request_throughput"] = metrics.request_throughput;
  json["request_goodput"] = options.goodput.empty() ? Json() : Json(metrics.request_goodput);
  json["output_throughput"] = metrics.output_throughput;
  json["total_token_throughput"] = metrics.total_throughput;
  if (options.detailed) add_details(json, records);
  json["max_output_tokens_per_s"] = metrics.peak_output_per_s;
  json["max_concurrent_requests"] = metrics.peak_concurrent;
  json["rtfx"] = 0.0;
  json["latencies"] = json["queue_times"] = Json::array();
  for (const auto& record : records) {
    json["latencies"].push_back(record.latency_s);
    json["queue_times"].push_back(record.queue_s);
  }
  for (const auto& metric : kMetrics) {
    if (!wants(options, metric.key)) continue;
    const Distribution& values = metrics.*metric.member;
    json[fmt::format("mean_{}_ms", metric.key)] = values.mean;
    json[fmt::format("median_{}_ms", metric.key)] = values.median;
    json[fmt::format("std_{}_ms", metric.key)] = values.std;
    for (size_t i = 0; i < options.percents.size(); ++i) {
      json[fmt::format("p{}_{}_ms", percent_word(options.percents[i]), metric.key)] = values.percentiles[i];
    }
  }
  return json;
}

std::string result_file_name(const ReportOptions& options, const std::string& date) {
  const std::string label = options.label.empty() ? options.backend : options.label;
  const std::string concurrency =
      options.max_concurrency ? fmt::format("-concurrency{}", *options.max_concurrency) : "";
  const std::string model = std::filesystem::path(options.model_id).filename().string();
  const auto& arrivals = options.arrivals;
  if (!arrivals.ramp.empty()) {
    return fmt::format("{}-ramp-up-{}-{}qps-{}qps{}-{}-{}.json", label, arrivals.ramp, arrivals.ramp_start_rps,
                       arrivals.ramp_end_rps, concurrency, model, date);
  }
  return fmt::format("{}-{}qps{}-{}-{}.json", label, rate_word(arrivals.rate), concurrency, model, date);
}

Result<void> check_report_options(const ReportOptions& options) {
  for (const auto& name : options.metrics) {
    if (std::ranges::none_of(kMetrics, [&](const auto& metric) { return name == metric.key; })) {
      return fail(Code::kInvalidArgument, "--percentile-metrics '{}': choose from ttft, tpot, itl, e2el", name);
    }
  }
  for (const double percent : options.percents) {
    if (!(percent >= 0 && percent <= 100)) {
      return fail(Code::kInvalidArgument, "--metric-percentiles {}: from 0 to 100", percent);
    }
  }
  for (const auto& item : options.metadata) {
    if (item.find('=') == std::string::npos || item.front() == '=') {
      return fail(Code::kInvalidArgument, "--metadata '{}': write KEY=VALUE", item);
    }
  }
  return {};
}

}  // namespace baton::bench
