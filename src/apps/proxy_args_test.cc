#include "apps/proxy_args.h"

#include <gtest/gtest.h>

namespace baton::apps {
namespace {

Result<ProxyArgs> parse(std::vector<std::string> args) { return parse_proxy_args(std::move(args), "env-key"); }

TEST(ProxyArgs, TheGuidesCommandLine) {
  auto args = parse({"--host", "0.0.0.0", "--port", "1999", "--workers", "2", "--prefiller-hosts", "10.0.0.1",
                     "10.0.0.2", "--prefiller-ports", "7100", "7101", "--decoder-hosts", "::1", "[fe80::1]",
                     "--decoder-ports", "7102", "7103"});
  ASSERT_TRUE(args) << args.error().message();
  const auto& options = args->options;
  EXPECT_EQ(options.http.listen.host, "0.0.0.0");
  EXPECT_EQ(options.http.listen.port, 1999);
  ASSERT_EQ(options.prefill.size(), 2u);
  EXPECT_EQ(options.prefill[1].host, "10.0.0.2");
  EXPECT_EQ(options.prefill[1].port, 7101);
  EXPECT_EQ(options.decode[0].host, "::1");
  EXPECT_EQ(options.decode[1].host, "fe80::1");
  EXPECT_EQ(options.engine_api_key, "env-key");
  EXPECT_FALSE(args->notice.empty());
}

TEST(ProxyArgs, DefaultsAreTheExamples) {
  const auto args = parse({}).value();
  EXPECT_EQ(args.options.http.listen.port, 8000);
  EXPECT_EQ(args.options.prefill.at(0).port, 8001);
  EXPECT_EQ(args.options.decode.at(0).port, 8002);
  EXPECT_EQ(args.options.retry.max_retries, 3);
  EXPECT_EQ(args.options.retry.retry_delay, std::chrono::milliseconds(1));
  EXPECT_EQ(args.options.waiting_retry_interval, std::chrono::seconds(10));
}

TEST(ProxyArgs, MistakesAreNamed) {
  EXPECT_NE(parse({"--decoder-hosts", "a", "b"}).error().message().find("give as many"), std::string::npos);
  EXPECT_FALSE(parse({"--port", "70000"}));
  EXPECT_NE(parse({"--host", "127.0.0.1", "--port", "8002", "--decoder-hosts", "127.0.0.1", "--decoder-ports", "8002"})
                .error()
                .message()
                .find("itself"),
            std::string::npos);
  EXPECT_FALSE(parse({"--nonsense"}));
  EXPECT_FALSE(parse({"--log-level", "LOUD"}));
  EXPECT_FALSE(parse({"--prefiller-hosts", "a:1", "--prefiller-ports", "2"}));
  EXPECT_NE(parse({"--help"}).value().help.find("--prefiller-hosts"), std::string::npos);
}

TEST(ProxyArgs, TlsOfBothSides) {
  const auto args = parse({"--ssl-certfile", "c", "--ssl-keyfile", "k", "--ssl-ca-certs", "a", "--ssl-cert-reqs", "2",
                           "--engine-ssl-ca-certs", "ea", "--api-key", "one", "two"})
                        .value();
  const auto& options = args.options;
  EXPECT_EQ(options.http.tls.ca_file, "a");
  EXPECT_TRUE(options.engines_over_tls);
  EXPECT_EQ(options.engine_tls.ca_file, "ea");
  EXPECT_TRUE(options.engine_tls.verify_peer);
  EXPECT_EQ(options.api_keys, (std::vector<std::string>{"one", "two"}));
  EXPECT_TRUE(parse({"--engine-ssl"})->options.engines_over_tls);
  EXPECT_FALSE(parse({}).value().options.engines_over_tls);
  // Without a CA nobody's certificate could be asked for: that is no weaker check, it is a mistake.
  EXPECT_FALSE(parse({"--ssl-certfile", "c", "--ssl-cert-reqs", "2"}));
  EXPECT_FALSE(parse({"--ssl-cert-reqs", "2"}));
  EXPECT_FALSE(parse({"--ssl-keyfile", "k"}));
  EXPECT_FALSE(parse({"--engine-ssl-keyfile", "k"}));
  EXPECT_FALSE(parse({"--ssl-cert-reqs", "1"}));
}

}  // namespace
}  // namespace baton::apps
