// A wrong arrival process makes every latency under load a figure of something else.
#include "bench/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace baton::bench {
namespace {

TEST(Arrivals, infinite_rate_sends_all_at_once) {
  EXPECT_EQ(arrival_times({.rate = INFINITY}, 3), (std::vector<double>{0, 0, 0}));
}

TEST(Arrivals, steady_rate_ends_where_the_rate_says) {
  const auto times = arrival_times({.rate = 4, .seed = 7}, 400);
  EXPECT_TRUE(std::ranges::is_sorted(times));
  EXPECT_NEAR(times.back(), 100, 1e-9);
}

TEST(Arrivals, infinite_burstiness_has_even_gaps) {
  const auto times = arrival_times({.rate = 2, .burstiness = INFINITY}, 4);
  EXPECT_NEAR(times[0], 0.5, 1e-12);
  EXPECT_NEAR(times[3], 2.0, 1e-12);
}

// The gamma distribution of shape b has a squared coefficient of variation of 1 / b.
TEST(Arrivals, burstiness_is_the_shape_of_the_gaps) {
  for (const double shape : {0.5, 1.0, 4.0}) {
    const auto times = arrival_times({.rate = 1, .burstiness = shape, .seed = 3}, 20000);
    double sum = 0, squares = 0, last = 0;
    for (const double time : times) {
      sum += time - last;
      squares += (time - last) * (time - last);
      last = time;
    }
    const double mean = sum / 20000;
    EXPECT_NEAR((squares / 20000 - mean * mean) / (mean * mean), 1 / shape, 0.1 / shape) << shape;
  }
}

TEST(Arrivals, a_ramp_goes_from_start_to_end) {
  const auto times = arrival_times(
      {.rate = INFINITY, .burstiness = INFINITY, .ramp = "linear", .ramp_start_rps = 1, .ramp_end_rps = 4}, 4);
  EXPECT_NEAR(times[0], 1, 1e-12);
  EXPECT_NEAR(times[1] - times[0], 1 / 2.0, 1e-12);
  EXPECT_NEAR(times[3] - times[2], 1 / 4.0, 1e-12);
  const auto faster = arrival_times(
      {.rate = INFINITY, .burstiness = INFINITY, .ramp = "exponential", .ramp_start_rps = 1, .ramp_end_rps = 4}, 3);
  EXPECT_NEAR(faster[1] - faster[0], 1 / 2.0, 1e-12);
}

TEST(Arrivals, what_makes_no_sense_is_refused) {
  EXPECT_FALSE(check_arrivals({.rate = 0}).has_value());
  EXPECT_FALSE(check_arrivals({.rate = NAN}).has_value());
  EXPECT_FALSE(check_arrivals({.rate = 1, .burstiness = 0}).has_value());
  EXPECT_FALSE(check_arrivals({.rate = INFINITY, .ramp = "linear"}).has_value());
  EXPECT_FALSE(
      check_arrivals({.rate = INFINITY, .ramp = "sideways", .ramp_start_rps = 1, .ramp_end_rps = 2}).has_value());
  EXPECT_FALSE(check_arrivals({.rate = 2, .ramp = "linear", .ramp_start_rps = 1, .ramp_end_rps = 2}).has_value());
  EXPECT_TRUE(check_arrivals({.rate = INFINITY, .ramp = "linear", .ramp_start_rps = 1, .ramp_end_rps = 2}).has_value());
}

}  // namespace
}  // namespace baton::bench
