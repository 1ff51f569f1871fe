// What base must never get wrong: errors keep their words, readers never read past the end, the pool runs each part
// once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <ctime>
#include <numeric>
#include <thread>

#include "base/bounded_queue.h"
#include "base/byte_codec.h"
#include "base/compute_pool.h"
#include "base/hash.h"
#include "base/json_depth.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/status.h"

namespace baton {
namespace {

Result<int> odd(int value) {
  if (value % 2 == 0) return fail(Code::kInvalidArgument, "{} is even", value);
  return value;
}
Result<int> sum_of_odds(int a, int b) {
  BATON_TRY_ASSIGN(const int first, odd(a));
  BATON_TRY_ASSIGN(const int second, odd(b));
  return first + second;
}

TEST(Status, TheFirstErrorIsReturnedWithItsWords) {
  EXPECT_EQ(sum_of_odds(1, 3).value(), 4);
  const auto failed = sum_of_odds(1, 2);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().with_context("here").to_string(), "invalid_argument: here: 2 is even");
}

TEST(ByteCodec, RoundTripAndEveryTruncationFails) {
  ByteWriter writer;
  writer.put<uint16_t>(7);
  writer.put_string("baton");
  const std::vector<int64_t> numbers{1, -2, 3};
  writer.put_array<int64_t>(numbers);
  const auto bytes = writer.take();
  for (size_t length = 0; length <= bytes.size(); ++length) {
    ByteReader reader(std::span(bytes).first(length));
    const auto seven = reader.get<uint16_t>();
    const auto name = reader.get_string();
    const auto array = reader.get_array<int64_t>();
    EXPECT_EQ(reader.finish("message").has_value(), length == bytes.size());
    if (length == bytes.size()) {
      EXPECT_EQ(seven, 7);
      EXPECT_EQ(name, "baton");
      EXPECT_EQ(array, numbers);
    }
  }
}

TEST(ByteCodec, AnAbsurdCountIsRefusedWithoutAllocating) {
  ByteWriter writer;
  writer.put<uint32_t>(0xffffffff);
  ByteReader reader(writer.view());
  EXPECT_TRUE(reader.get_array<int64_t>().empty());
  EXPECT_FALSE(reader.ok());
}

TEST(Hash, PublishedVectors) {
  // SHA-256 of "abc": FIPS 180-2, appendix B.1. XXH3-64 of the empty input: the xxHash specification.
  EXPECT_EQ(to_hex(sha256(std::as_bytes(std::span("abc", 3)))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(xxh3_64({}), 0x2d06800538d394c2ull);
  Xxh3Stream stream;
  stream.update(std::as_bytes(std::span("ab", 2)));
  stream.update(std::as_bytes(std::span("c", 1)));
  EXPECT_EQ(stream.digest(), xxh3_64(std::as_bytes(std::span("abc", 3))));
}

TEST(Log, TextFromOutsideStaysOnItsLine) {
  EXPECT_EQ(log_quoted("a\nI 01-01 forged\x1b[31m\"\\"), R"("a\x0aI 01-01 forged\x1b[31m\"\\")");
  EXPECT_EQ(log_quoted(std::string_view("\0", 1)), R"("\x00")");
  EXPECT_EQ(log_quoted(std::string(500, 'x')).size(), 205u);
}

TEST(JsonDepth, BracketsInStringsDoNotCount) {
  EXPECT_FALSE(json_nests_deeper_than(R"({"a": "[[[[\"[["})", 1));
  EXPECT_FALSE(json_nests_deeper_than("[[],[]]", 2));
  EXPECT_TRUE(json_nests_deeper_than("[[[", 2));
}

TEST(BoundedQueue, FullAndClosedRefuse) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.try_push(1));
  EXPECT_TRUE(queue.try_push(2));
  EXPECT_FALSE(queue.try_push(3));
  queue.close();
  EXPECT_THAT(queue.wait_drain(std::chrono::hours(1)), testing::ElementsAre(1, 2));
  EXPECT_FALSE(queue.try_push(4));
  EXPECT_EQ(queue.pop(std::chrono::hours(1)), std::nullopt);
}

class ComputePoolTest : public testing::TestWithParam<int> {};

TEST_P(ComputePoolTest, EveryIndexRunsOnceInEveryRegion) {
  ComputePool pool({.threads = GetParam(), .spin_us = 5});
  for (int round = 0; round < 300; ++round) {
    std::vector<std::atomic<int>> hits(97);
    pool.parallel_for(97, 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) hits[i].fetch_add(1);
    });
    for (auto& hit : hits) ASSERT_EQ(hit.load(), 1);
    if (round % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // let the workers block
  }
}
INSTANTIATE_TEST_SUITE_P(Threads, ComputePoolTest, testing::Values(1, 2, 5));

double thread_milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

// As on a machine shared with other processes, a late worker needs the very core that its caller would spin on.
TEST(ComputePool, CallerLeavesItsCoreToLateWorkers) {
  constexpr int kRegions = 20, kWorkerMilliseconds = 2;
  double spent = 0;
  std::thread([&] {
    cpu_set_t cores, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof cores, &cores), 0);
    CPU_ZERO(&one);
    for (int core = 0; CPU_COUNT(&one) == 0; ++core) {
      if (CPU_ISSET(core, &cores)) CPU_SET(core, &one);
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    ComputePool pool({.threads = 3});  // its workers inherit the one core
    spent = -thread_milliseconds();
    for (int region = 0; region < kRegions; ++region) {
      pool.run([&](int index) {
        const double begin = thread_milliseconds();
        while (index > 0 && thread_milliseconds() < begin + kWorkerMilliseconds) {
        }
      });
    }
    spent += thread_milliseconds();
  }).join();
  // Spinning on, the caller would take a third to a half of the core: 1 to 2 ms of CPU time for each of a worker's.
  EXPECT_LT(spent, 0.5 * kRegions * kWorkerMilliseconds);
}

TEST(Metrics, TextHoldsNamesLabelsAndValues) {
  MetricRegistry registry({{"model_name", "m"}});
  registry.counter("vllm:prompt_tokens_total", "Prompt tokens.").add(3);
  registry.gauge("vllm:num_requests_running", "Running.").set(0);
  registry.histogram("vllm:ttft_seconds", "TTFT.", {0.1, 1}).observe(0.5);
  const auto text = registry.text();
  EXPECT_THAT(text, testing::HasSubstr("vllm:prompt_tokens_total{model_name=\"m\"} 3"));
  EXPECT_THAT(text, testing::HasSubstr("vllm:num_requests_running{model_name=\"m\"} 0"));
  EXPECT_THAT(text, testing::HasSubstr("vllm:ttft_seconds_bucket{model_name=\"m\",le=\"1\"} 1"));
}

}  // namespace
}  // namespace baton
