// The figures must be vLLM's: expected values are numpy's (1.26: percentile, median, std) or worked out by hand from
// vLLM's definitions.
#include "bench/metrics.h"

#include <gtest/gtest.h>

namespace baton::bench {
namespace {

RequestRecord record(double start, double ttft, std::vector<double> gaps, int64_t tokens) {
  RequestRecord result{.success = true, .prompt_tokens = 10, .output_tokens = tokens, .start_s = start, .ttft_s = ttft};
  result.latency_s = ttft;
  for (const double gap : gaps) result.latency_s += gap;
  result.itl_s = std::move(gaps);
  return result;
}

// numpy.percentile([1, 2, 4, 8, 16], [0, 10, 50, 90, 99, 100]), numpy.std, numpy.mean
TEST(Metrics, percentiles_and_deviation_are_numpys) {
  const double percents[] = {0, 10, 50, 90, 99, 100};
  const auto described = describe({16, 8, 1, 4, 2}, percents);
  const double expected[] = {1, 1.4, 4, 12.8, 15.68, 16};
  for (size_t i = 0; i < std::size(expected); ++i) EXPECT_NEAR(described.percentiles[i], expected[i], 1e-12);
  EXPECT_NEAR(described.mean, 6.2, 1e-12);
  EXPECT_NEAR(described.std, 5.455272678794342, 1e-12);
  EXPECT_NEAR(described.median, 4, 1e-12);
}

TEST(Metrics, nothing_measured_is_zero) {
  const double percents[] = {99};
  const auto metrics = measure({}, 0, percents, {});
  EXPECT_EQ(metrics.completed, 0);
  EXPECT_EQ(metrics.output_throughput, 0);
  EXPECT_EQ(metrics.ttft.percentiles[0], 0);
}

TEST(Metrics, definitions) {
  const double percents[] = {50};
  // Three tokens in two chunks: TPOT counts tokens, ITL counts chunks.
  std::vector<RequestRecord> records{record(0, 0.1, {0.2}, 3), record(1, 0.3, {}, 1)};
  RequestRecord failed{.error = "no"};
  RequestRecord stopped{.interrupted = true};
  records.push_back(failed);
  records.push_back(stopped);
  const auto metrics = measure(records, 2, percents, {});
  EXPECT_EQ(metrics.completed, 2);
  EXPECT_EQ(metrics.failed, 1);
  EXPECT_EQ(metrics.interrupted, 1);
  EXPECT_EQ(metrics.input_tokens, 20);
  EXPECT_EQ(metrics.output_tokens, 4);
  EXPECT_NEAR(metrics.ttft.mean, 200, 1e-9);
  EXPECT_NEAR(metrics.tpot.mean, 100, 1e-9);  // 0.2 s over two later tokens; the other request has none
  EXPECT_NEAR(metrics.itl.mean, 200, 1e-9);
  EXPECT_NEAR(metrics.e2el.mean, 300, 1e-9);
  EXPECT_NEAR(metrics.request_throughput, 1, 1e-12);
  EXPECT_NEAR(metrics.output_throughput, 2, 1e-12);
  EXPECT_NEAR(metrics.total_throughput, 12, 1e-12);
}

TEST(Metrics, goodput_wants_every_limit_kept) {
  const std::vector<RequestRecord> records{record(0, 0.1, {0.1}, 2), record(0, 0.5, {0.1}, 2), record(0, 0.1, {0.9}, 2),
                                           record(0, 0.1, {}, 1)};
  EXPECT_NEAR(measure(records, 1, {}, {{"ttft", 200}, {"tpot", 200}}).request_goodput, 2, 1e-12);
  EXPECT_NEAR(measure(records, 1, {}, {{"e2el", 300}}).request_goodput, 2, 1e-12);
}

TEST(Metrics, peaks) {
  // Chunks at 0.5 and 0.9 (one second), 1.9, and 0.95 of the other request.
  const std::vector<RequestRecord> records{record(5, 0.5, {0.4, 1.0}, 3), record(5.5, 0.45, {}, 1),
                                           record(6.9, 2, {}, 1)};
  const auto metrics = measure(records, 4, {}, {});
  EXPECT_EQ(metrics.peak_output_per_s, 3);
  EXPECT_EQ(metrics.peak_concurrent, 2);
}

TEST(Metrics, a_request_that_begins_as_another_ends_is_not_beside_it) {
  EXPECT_EQ(measure(std::vector{record(0, 1, {}, 1), record(1, 1, {}, 1)}, 2, {}, {}).peak_concurrent, 1);
}

TEST(Metrics, goodput_words) {
  const std::vector<std::string> fine{"ttft:200", "e2el:1.5"};
  EXPECT_EQ(parse_goodput(fine), (Goodput{{"ttft", 200}, {"e2el", 1.5}}));
  for (const char* bad : {"ttft", "ttft:", "itl:3", "ttft:x", "ttft:-1", ":3"}) {
    const std::vector<std::string> items{bad};
    EXPECT_FALSE(parse_goodput(items).has_value()) << bad;
  }
}

}  // namespace
}  // namespace baton::bench
