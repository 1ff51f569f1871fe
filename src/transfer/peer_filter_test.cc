#include "transfer/peer_filter.h"

#include <gtest/gtest.h>

namespace baton::transfer {
namespace {

bool allows(const PeerFilter& filter, const char* address, std::string_view host = "") {
  return filter.allows(host.empty() ? address : host, address);
}

TEST(PeerFilter, WithoutAListOnlyAddressesThatNoEngineHasAreRefused) {
  const PeerFilter filter;
  for (const char* good : {"127.0.0.1", "10.1.2.3", "192.168.0.9", "8.8.8.8", "::1", "fd00::1", "2001:db8::1",
                           "169.253.1.1", "::ffff:10.0.0.1"}) {
    EXPECT_TRUE(allows(filter, good)) << good;
  }
  for (const char* bad : {"169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254", "0.0.0.0",
                          "::", "224.0.0.1", "ff02::1", "255.255.255.255"}) {
    EXPECT_FALSE(allows(filter, bad)) << bad;
  }
}

TEST(PeerFilter, AListAllowsWhatIsInIt) {
  const auto filter = PeerFilter::parse({"10.0.0.0/9", "192.168.1.7", "fd00:1::/33", "p0.Example", "[::1]"});
  ASSERT_TRUE(filter.has_value());
  EXPECT_TRUE(allows(*filter, "10.127.255.255"));
  EXPECT_TRUE(allows(*filter, "::ffff:10.1.1.1"));
  EXPECT_FALSE(allows(*filter, "10.128.0.0"));
  EXPECT_TRUE(allows(*filter, "192.168.1.7"));
  EXPECT_FALSE(allows(*filter, "192.168.1.6"));
  EXPECT_TRUE(allows(*filter, "fd00:1:7fff::1"));
  EXPECT_FALSE(allows(*filter, "fd00:1:8000::1"));
  EXPECT_TRUE(allows(*filter, "::1"));
  EXPECT_FALSE(allows(*filter, "127.0.0.1"));
  // A name stands for what it resolves to; a name that is not listed for its address alone.
  EXPECT_TRUE(allows(*filter, "172.16.0.1", "P0.example"));
  EXPECT_FALSE(allows(*filter, "172.16.0.1", "p1.example"));
  EXPECT_TRUE(allows(*filter, "10.0.0.1", "p1.example"));
}

TEST(PeerFilter, TheWholeOfAFamilyCanBeListed) {
  const auto v4 = PeerFilter::parse({"0.0.0.0/0"});
  EXPECT_TRUE(allows(*v4, "1.2.3.4"));
  EXPECT_FALSE(allows(*v4, "2001:db8::1"));
  EXPECT_TRUE(allows(*PeerFilter::parse({"::/0"}), "1.2.3.4"));
}

TEST(PeerFilter, WrongEntriesAreNamed) {
  for (const char* bad : {"10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8x", "fd00::/129", "p0/8", "", "a b",
                          "http://x", "10.0.0.1:80"}) {
    const auto filter = PeerFilter::parse({"10.0.0.1", bad});
    ASSERT_FALSE(filter.has_value()) << bad;
    EXPECT_EQ(filter.error().code(), Code::kInvalidArgument);
    EXPECT_NE(filter.error().message().find(std::string("'") + bad + "'"), std::string::npos);
  }
}

}  // namespace
}  // namespace baton::transfer
