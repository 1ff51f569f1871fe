#include "net/stream.h"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <filesystem>
#include <fstream>

#include "net/test_support.h"

namespace baton::net {
namespace {

using std::chrono::milliseconds;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

Task<Result<void>> write_text(Stream& stream, std::string_view text, Duration timeout = std::chrono::seconds(5)) {
  const auto piece = bytes_of(text);
  co_return co_await stream.write({&piece, 1}, timeout);
}

Task<Result<std::string>> read_text(Stream& stream, size_t size) {
  std::string text(size, '\0');
  BATON_CO_TRY(co_await read_exactly(stream, std::as_writable_bytes(std::span(text)), std::chrono::seconds(5)));
  co_return text;
}

// Two connected ends, by memory or by TCP.
Task<std::pair<std::unique_ptr<Stream>, std::unique_ptr<Stream>>> make_pair_of(bool memory) {
  const auto executor = co_await asio::this_coro::executor;
  if (memory) co_return make_memory_streams(executor, 1000);
  auto listener = listen(executor, {}).value();
  auto client = (co_await connect({.host = "127.0.0.1", .port = listener->port()})).value();
  auto server = (co_await listener->accept()).value();
  co_return std::pair(std::move(client), std::move(server));
}

class EveryStream : public testing::TestWithParam<bool> {
 protected:
  ContextThread context_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, EveryStream, testing::Values(true, false),
                         [](const auto& info) { return info.param ? "memory" : "tcp"; });

TEST_P(EveryStream, CarriesPiecesInOrderAndEndsOrderly) {
  context_.run([](bool memory) -> Task<void> {
    auto [a, b] = co_await make_pair_of(memory);
    const std::span<const std::byte> pieces[] = {bytes_of("one "), bytes_of(""), bytes_of("two "), bytes_of("three")};
    EXPECT_TRUE(co_await a->write(pieces, std::chrono::seconds(1)));
    EXPECT_EQ((co_await read_text(*b, 13)).value(), "one two three");
    EXPECT_TRUE(b->quiet());
    EXPECT_TRUE(co_await a->shutdown_write(std::chrono::seconds(1)));
    std::byte byte;
    EXPECT_EQ((co_await b->read_some({&byte, 1}, std::chrono::seconds(1))).value(), 0u);
    EXPECT_TRUE(b->peer_hung_up());
    EXPECT_FALSE(b->quiet());
    EXPECT_TRUE(co_await write_text(*b, "still"));
    EXPECT_EQ((co_await read_text(*a, 5)).value(), "still");
  }(GetParam()));
}

TEST_P(EveryStream, ReadTimesOutAndTheStreamLivesOn) {
  context_.run([](bool memory) -> Task<void> {
    auto [a, b] = co_await make_pair_of(memory);
    std::byte byte;
    for (int i = 0; i < 2; ++i) {
      const TimePoint begin = SteadyClock().now();
      auto read = co_await b->read_some({&byte, 1}, milliseconds(30));
      EXPECT_EQ(read.error().code(), Code::kDeadlineExceeded);
      const double waited = seconds_between(begin, SteadyClock().now());
      EXPECT_GE(waited, 0.029);
      EXPECT_LT(waited, 1.0);
    }
    EXPECT_TRUE(co_await write_text(*a, "x"));
    EXPECT_EQ((co_await read_text(*b, 1)).value(), "x");
  }(GetParam()));
}

TEST_P(EveryStream, WriteToOneWhoDoesNotReadTimesOut) {
  context_.run([](bool memory) -> Task<void> {
    auto [a, b] = co_await make_pair_of(memory);
    const std::string big(64u << 20, 'x');
    auto written = co_await write_text(*a, big, milliseconds(50));
    EXPECT_EQ(written.error().code(), Code::kDeadlineExceeded);
  }(GetParam()));
}

TEST_P(EveryStream, CloseCancelsAPendingRead) {
  context_.run([](bool memory) -> Task<void> {
    auto [a, b] = co_await make_pair_of(memory);
    asio::steady_timer timer(co_await asio::this_coro::executor, milliseconds(20));
    timer.async_wait([end = b.get()](auto) { end->close(); });
    std::byte byte;
    auto read = co_await b->read_some({&byte, 1}, kNoTimeout);
    EXPECT_EQ(read.error().code(), Code::kCancelled);
    EXPECT_EQ((co_await b->read_some({&byte, 1}, kNoTimeout)).error().code(), Code::kCancelled);
    b->close();
  }(GetParam()));
}

TEST_P(EveryStream, LargeDataGoesThroughSmallBuffers) {
  context_.run([](bool memory) -> Task<void> {
    auto [a, b] = co_await make_pair_of(memory);
    std::string sent(3'000'000, '\0');
    for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 31 + i / 255);
    bool wrote = false;
    asio::co_spawn(
        co_await asio::this_coro::executor,
        [&]() -> Task<void> { wrote = (co_await write_text(*a, sent)).has_value(); }, asio::use_future);
    auto got = co_await read_text(*b, sent.size());
    EXPECT_TRUE(got && *got == sent);
    EXPECT_TRUE(wrote);
  }(GetParam()));
}

TEST_P(EveryStream, WriteAfterThePeerWentFails) {
  context_.run([](bool memory) -> Task<void> {
    auto [a, b] = co_await make_pair_of(memory);
    b.reset();
    Result<void> written;
    for (int i = 0; i < 100 && written; ++i) {
      written = co_await write_text(*a, "x");
      asio::steady_timer pause(co_await asio::this_coro::executor, milliseconds(1));
      co_await pause.async_wait(asio::use_awaitable);
    }
    EXPECT_FALSE(written);
    if (!written) EXPECT_EQ(written.error().code(), Code::kUnavailable);
  }(GetParam()));
}

TEST(Listen, PortTakenSaysSo) {
  ContextThread context;
  auto first = listen(context.executor(), {}).value();
  auto second = listen(context.executor(), {.host = "127.0.0.1", .port = first->port()});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
  EXPECT_NE(second.error().message().find(std::to_string(first->port())), std::string::npos);
  EXPECT_NE(second.error().message().find("choose another port"), std::string::npos);
}

TEST(Listen, BadHostIsInvalid) {
  ContextThread context;
  for (const char* host : {"", "256.256.256.256", "no.such.host.invalid"})
    EXPECT_EQ(listen(context.executor(), {.host = host}).error().code(), Code::kInvalidArgument) << host;
  EXPECT_EQ(listen(context.executor(), {.host = "127.0.0.1", .port = 70000}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(listen(context.executor(), {.host = "203.0.113.1"}).error().code(), Code::kInvalidArgument);
}

TEST(Listen, Ipv6AndBothFamilies) {
  ContextThread context;
  for (const char* host : {"::1", "[::1]", "::"}) {
    auto listener = listen(context.executor(), {.host = host}).value();
    context.run([](Listener& from) -> Task<void> {
      auto client = co_await connect({.host = "[::1]", .port = from.port()});
      EXPECT_TRUE(client) << client.error().message();
      auto server = (co_await from.accept()).value();
      EXPECT_TRUE(server->peer().starts_with("[::1]:")) << server->peer();
      EXPECT_EQ((*client)->peer(), format_host_port("::1", from.port()));
    }(*listener));
    if (std::string_view(host) == "::")
      context.run([](Listener& from) -> Task<void> {
        EXPECT_TRUE(co_await connect({.host = "localhost", .port = from.port()}));
        EXPECT_TRUE(co_await connect({.host = "127.0.0.1", .port = from.port()}));
      }(*listener));
  }
}

TEST(Listen, UnixSocketReplacesAStaleFileAndRefusesALiveOne) {
  ContextThread context;
  const auto path = std::filesystem::temp_directory_path() / fmt::format("baton_net_{}.sock", ::getpid());
  {
    auto listener = listen(context.executor(), {.unix_path = path.string()}).value();
    auto second = listen(context.executor(), {.unix_path = path.string()});
    EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
    listener->close();
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  const int dead = ::socket(AF_UNIX, SOCK_STREAM, 0);  // leaves a file that nobody listens on
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path.c_str());
  ASSERT_EQ(::bind(dead, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ::close(dead);
  EXPECT_TRUE(listen(context.executor(), {.unix_path = path.string()}));
  std::ofstream(path) << "a file";
  EXPECT_EQ(listen(context.executor(), {.unix_path = path.string()}).error().code(), Code::kAlreadyExists);
  std::filesystem::remove(path);
  EXPECT_EQ(listen(context.executor(), {.unix_path = std::string(200, 'x')}).error().code(), Code::kInvalidArgument);
}

TEST(Connect, RefusedUnresolvedAndSilentPeersAreErrors) {
  ContextThread context;
  int closed_port = 0;
  {
    closed_port = listen(context.executor(), {}).value()->port();
  }
  context.run([](int port) -> Task<void> {
    auto refused = co_await connect({.host = "127.0.0.1", .port = port});
    EXPECT_EQ(refused.error().code(), Code::kUnavailable);
    auto nameless = co_await connect({.host = "no.such.host.invalid", .port = 80});
    EXPECT_FALSE(nameless);
    auto portless = co_await connect({.host = "127.0.0.1", .port = 0});
    EXPECT_EQ(portless.error().code(), Code::kInvalidArgument);
  }(closed_port));
}

}  // namespace
}  // namespace baton::net
