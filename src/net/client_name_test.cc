#include "net/client_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::net {
namespace {

using testing::ElementsAre;
using Forwarders = std::vector<std::string>;

HttpRequest request_from(std::string peer, std::string key = "", std::string forwarded_for = "") {
  HttpRequest request;
  request.peer = std::move(peer);
  if (!key.empty()) request.headers.set("Authorization", "Bearer " + key);
  if (!forwarded_for.empty()) request.headers.set("X-Forwarded-For", forwarded_for);
  return request;
}

TEST(ClientName, AClientIsItsAddressOrACheckedKey) {
  const auto name = [](const HttpRequest& request, bool checked = false) { return client_name(request, checked, {}); };
  const auto one = name(request_from("10.0.0.1:1000"));
  EXPECT_EQ(one, name(request_from("10.0.0.1:2000")));
  EXPECT_NE(one, name(request_from("10.0.0.2:1000")));
  EXPECT_NE(name(request_from("[fd00::1]:1000")), name(request_from("[fd00::2]:1000")));
  // Drawing a fresh key for each request gains nothing where nobody checks it.
  EXPECT_EQ(one, name(request_from("10.0.0.1:1000", "fresh")));
  const auto keyed = name(request_from("10.0.0.1:1000", "secret"), true);
  EXPECT_EQ(keyed, name(request_from("10.0.0.9:1000", "secret"), true));
  EXPECT_NE(keyed, name(request_from("10.0.0.1:1000", "other"), true));
  EXPECT_EQ(keyed.find("secret"), std::string::npos);
}

TEST(ClientName, OnlyForwardersSpeakForOthers) {
  const Forwarders proxies{"10.0.0.1", "::1"};
  EXPECT_EQ(client_address(request_from("10.0.0.1:9", "", "192.0.2.7"), proxies), "192.0.2.7");
  EXPECT_EQ(client_address(request_from("[::1]:9", "", "2001:db8::5"), proxies), "2001:db8::5");
  EXPECT_EQ(client_address(request_from("[::ffff:10.0.0.1]:9", "", "192.0.2.7"), proxies), "192.0.2.7");
  // A client that names itself otherwise each time stays who it is.
  EXPECT_EQ(client_address(request_from("192.0.2.8:9", "", "1.2.3.4"), proxies), "192.0.2.8");
  // Only the entry that the forwarder added is its own word.
  EXPECT_EQ(client_address(request_from("10.0.0.1:9", "", "1.2.3.4, 192.0.2.7 "), proxies), "192.0.2.7");
  EXPECT_EQ(client_address(request_from("10.0.0.1:9", "", "not an address"), proxies), "10.0.0.1");
  EXPECT_EQ(client_address(request_from("10.0.0.1:9", "", std::string(100, '1')), proxies), "10.0.0.1");
  EXPECT_EQ(client_address(request_from("192.0.2.8:9", "", "1.2.3.4"), Forwarders{"*"}), "1.2.3.4");
}

TEST(ClientName, ForwardersAreAList) {
  EXPECT_THAT(parse_forwarders(" 127.0.0.1 ,::1,, 10.0.0.1"), ElementsAre("127.0.0.1", "::1", "10.0.0.1"));
  EXPECT_TRUE(parse_forwarders("").empty());
}

}  // namespace
}  // namespace baton::net
