#include "server/admission.h"

#include <gtest/gtest.h>

namespace baton::server {
namespace {

TEST(Admission, RetryAfterFollowsTheQueueWithinBounds) {
  Pace pace;
  EXPECT_EQ(pace.retry_after({.waiting = 1000}, 1), 1);
  pace.observe(2.5);
  EXPECT_EQ(pace.retry_after({.waiting = 0}, 4), 1);
  EXPECT_EQ(pace.retry_after({.waiting = 9}, 4), 8);
  EXPECT_EQ(pace.retry_after({.waiting = 4096}, 4), 60);
  for (int i = 0; i < 100; ++i) pace.observe(0.1);
  EXPECT_EQ(pace.retry_after({.waiting = 9}, 4), 1);
}

}  // namespace
}  // namespace baton::server
