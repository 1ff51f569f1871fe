#include "server/admission.h"

#include <gtest/gtest.h>

namespace baton::server {
namespace {

net::HttpRequest request_from(std::string peer, std::string key = "") {
  net::HttpRequest request;
  request.peer = std::move(peer);
  if (!key.empty()) request.headers.set("Authorization", "Bearer " + key);
  return request;
}

TEST(Admission, AClientIsItsAddressOrACheckedKey) {
  const auto one = client_of(request_from("10.0.0.1:1000"), false);
  EXPECT_EQ(one, client_of(request_from("10.0.0.1:2000"), false));
  EXPECT_NE(one, client_of(request_from("10.0.0.2:1000"), false));
  EXPECT_NE(client_of(request_from("[fd00::1]:1000"), false), client_of(request_from("[fd00::2]:1000"), false));
  // Drawing a fresh key for each request gains nothing where nobody checks it.
  EXPECT_EQ(one, client_of(request_from("10.0.0.1:1000", "fresh"), false));
  const auto keyed = client_of(request_from("10.0.0.1:1000", "secret"), true);
  EXPECT_EQ(keyed, client_of(request_from("10.0.0.9:1000", "secret"), true));
  EXPECT_NE(keyed, client_of(request_from("10.0.0.1:1000", "other"), true));
  EXPECT_EQ(keyed.find("secret"), std::string::npos);
}

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
