#include "transport/tcp/auth.h"

#include "transport/tcp/tcp_test_support.h"

namespace baton::transport {
namespace {

using std::chrono::milliseconds;

struct Outcome {
  Result<void> server, client;
};

Outcome meet(const std::string& server_secret, const std::string& client_secret) {
  testing::Loop loop;
  auto [a, b] = net::make_memory_streams(loop.io.get_executor());
  std::optional<Result<void>> server, client;
  loop.spawn<Result<void>>(authenticate_as_server(*a, server_secret, milliseconds(200)), server);
  loop.spawn<Result<void>>(authenticate_as_client(*b, client_secret, milliseconds(200)), client);
  loop.run();
  return {server.value(), client.value()};
}

TEST(Auth, TheSameSecretOrNoneAtAllIsAgreedOn) {
  for (const char* secret : {"", "s3cret"}) {
    const auto outcome = meet(secret, secret);
    EXPECT_TRUE(outcome.server) << secret;
    EXPECT_TRUE(outcome.client) << secret;
  }
}

TEST(Auth, TheWrongSecretIsRefusedOnBothSides) {
  const auto outcome = meet("right", "wrong");
  EXPECT_EQ(outcome.server.error().code(), Code::kUnauthenticated);
  EXPECT_EQ(outcome.client.error().code(), Code::kUnauthenticated);
}

TEST(Auth, ASecretOnOneSideOnlyIsRefusedAndSaidWhere) {
  const auto missing = meet("right", "");
  EXPECT_FALSE(missing.server);
  EXPECT_EQ(missing.client.error().code(), Code::kUnauthenticated);
  EXPECT_NE(missing.client.error().message().find("asks for one, we have none"), std::string::npos);
  // No downgrade: a client with a secret does not talk to a server that asks for none.
  const auto downgrade = meet("", "right");
  EXPECT_EQ(downgrade.client.error().code(), Code::kUnauthenticated);
}

TEST(Auth, AnAnswerRecordedBeforeIsWorthNothing) {
  // The proof covers the server's nonce: what was right once fails against a fresh one.
  std::array<std::byte, 64> recorded{};
  const std::string secret = "s";
  const auto run = [&](bool record) {
    testing::Loop loop;
    auto [a, b] = net::make_memory_streams(loop.io.get_executor());
    auto [c, d] = net::make_memory_streams(loop.io.get_executor());
    std::optional<Result<void>> server, client, relay;
    loop.spawn<Result<void>>(authenticate_as_server(*a, secret, milliseconds(200)), server);
    if (record) loop.spawn<Result<void>>(authenticate_as_client(*d, secret, milliseconds(200)), client);
    const auto between = [&]() -> net::Task<Result<void>> {
      std::array<std::byte, 40> opening;
      BATON_CO_TRY(co_await net::read_exactly(*b, opening, milliseconds(200)));
      if (record) {
        const std::span<const std::byte> piece = opening;
        BATON_CO_TRY(co_await c->write({&piece, 1}, milliseconds(200)));
        BATON_CO_TRY(co_await net::read_exactly(*c, recorded, milliseconds(200)));
      }
      const std::span<const std::byte> piece = recorded;
      co_return co_await b->write({&piece, 1}, milliseconds(200));
    };
    loop.spawn<Result<void>>(between(), relay);
    loop.run();
    return server.value().has_value();
  };
  EXPECT_TRUE(run(true));
  EXPECT_FALSE(run(false));
}

TEST(Auth, SilenceAndGarbageEnd) {
  const std::string secret = "s";
  testing::Loop loop;
  auto [a, b] = net::make_memory_streams(loop.io.get_executor());
  auto [c, d] = net::make_memory_streams(loop.io.get_executor());
  std::optional<Result<void>> server, client, garbage;
  loop.spawn<Result<void>>(authenticate_as_server(*a, secret, milliseconds(50)), server);
  loop.spawn<Result<void>>(authenticate_as_client(*c, secret, milliseconds(200)), client);
  const auto talk = [&]() -> net::Task<Result<void>> {
    const std::string text = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    const auto piece = std::as_bytes(std::span(text));
    co_return co_await d->write({&piece, 1}, milliseconds(200));
  };
  loop.spawn<Result<void>>(talk(), garbage);
  loop.run();
  EXPECT_EQ(server.value().error().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(client.value().error().code(), Code::kDataLoss);
}

}  // namespace
}  // namespace baton::transport
