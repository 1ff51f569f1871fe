#include "bench/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

namespace baton::bench {
namespace {

constexpr double kMs = 1e3;

double tpot_s(const RequestRecord& record) {
  if (record.output_tokens <= 1) return 0;
  return (record.latency_s - record.ttft_s) / static_cast<double>(record.output_tokens - 1);
}

bool good(const RequestRecord& record, const Goodput& goodput) {
  return std::ranges::all_of(goodput, [&](const auto& limit) {
    const double seconds = limit.first == "ttft"   ? record.ttft_s
                           : limit.first == "tpot" ? tpot_s(record)
                                                   : record.latency_s;
    return seconds * kMs <= limit.second;
  });
}

// The most requests that were under way at one moment.
int64_t peak_concurrency(std::span<const RequestRecord> records) {
  std::vector<std::pair<double, int>> edges;
  for (const auto& record : records) {
    if (!record.success) continue;
    edges.emplace_back(record.start_s, 1);
    edges.emplace_back(record.start_s + record.latency_s, -1);
  }
  std::ranges::sort(edges);  // an end before a start at the same moment
  int64_t now = 0, peak = 0;
  for (const auto& [time, change] : edges) peak = std::max(peak, now += change);
  return peak;
}

// The most chunks in one of the seconds that begin with the first send.
double peak_chunks(std::span<const RequestRecord> records) {
  double first = INFINITY;
  for (const auto& record : records) {
    if (record.success) first = std::min(first, record.start_s);
  }
  std::map<int64_t, int64_t> seconds;
  for (const auto& record : records) {
    if (!record.success) continue;
    double at = record.start_s + record.ttft_s - first;
    ++seconds[static_cast<int64_t>(at)];
    for (const double gap : record.itl_s) ++seconds[static_cast<int64_t>(at += gap)];
  }
  int64_t peak = 0;
  for (const auto& [second, chunks] : seconds) peak = std::max(peak, chunks);
  return static_cast<double>(peak);
}

}  // namespace

double percentile(std::span<const double> sorted, double percent) {
  if (sorted.empty()) return 0;
  const double at = std::clamp(percent, 0.0, 100.0) / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - static_cast<double>(below));
}

Distribution describe(std::vector<double> values, std::span<const double> percents) {
  Distribution result{.percentiles = std::vector<double>(percents.size())};
  if (values.empty()) return result;
  std::ranges::sort(values);
  const auto count = static_cast<double>(values.size());
  result.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.std = std::sqrt(squares / count);
  result.median = percentile(values, 50);
  for (size_t i = 0; i < percents.size(); ++i) result.percentiles[i] = percentile(values, percents[i]);
  return result;
}

Result<Goodput> parse_goodput(std::span<const std::string> items) {
  Goodput goodput;
  for (const auto& item : items) {
    const size_t colon = item.find(':');
    const std::string name = item.substr(0, colon);
    const std::string number = colon == std::string::npos ? "" : item.substr(colon + 1);
    char* end = nullptr;
    const double value = std::strtod(number.c_str(), &end);
    const bool known = name == "ttft" || name == "tpot" || name == "e2el";
    if (!known || number.empty() || *end != '\0' || !(value >= 0)) {
      return fail(Code::kInvalidArgument, "--goodput '{}': write ttft:MS, tpot:MS or e2el:MS", item);
    }
    goodput[name] = value;
  }
  return goodput;
}

ServeMetrics measure(std::span<const RequestRecord> records, double duration_s, std::span<const double> percents,
                     const Goodput& goodput) {
  ServeMetrics metrics{.duration_s = duration_s};
  std::vector<double> ttft, tpot, itl, e2el;
  int64_t good_count = 0;
  for (const auto& record : records) {
    metrics.interrupted += record.interrupted;
    metrics.failed += !record.success && !record.interrupted;
    if (!record.success) continue;
    ++metrics.completed;
    metrics.input_tokens += record.prompt_tokens;
    metrics.output_tokens += record.output_tokens;
    ttft.push_back(record.ttft_s * kMs);
    e2el.push_back(record.latency_s * kMs);
    if (record.output_tokens > 1) tpot.push_back(tpot_s(record) * kMs);
    for (const double gap : record.itl_s) itl.push_back(gap * kMs);
    good_count += !goodput.empty() && good(record, goodput);
  }
  const auto per_second = [&](int64_t count) { return duration_s > 0 ? static_cast<double>(count) / duration_s : 0; };
  metrics.request_throughput = per_second(metrics.completed);
  metrics.request_goodput = per_second(good_count);
  metrics.output_throughput = per_second(metrics.output_tokens);
  metrics.total_throughput = per_second(metrics.input_tokens + metrics.output_tokens);
  metrics.peak_output_per_s = peak_chunks(records);
  metrics.peak_concurrent = peak_concurrency(records);
  metrics.ttft = describe(std::move(ttft), percents);
  metrics.tpot = describe(std::move(tpot), percents);
  metrics.itl = describe(std::move(itl), percents);
  metrics.e2el = describe(std::move(e2el), percents);
  return metrics;
}

}  // namespace baton::bench
