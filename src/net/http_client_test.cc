#include "net/http_client.h"

#include <atomic>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <functional>

#include "net/http_server.h"
#include "net/test_support.h"

namespace baton::net {
namespace {

using namespace std::chrono_literals;

// A server of raw bytes: each accepted connection is handled by a script, one after the other.
class ScriptServer {
 public:
  using Script = std::function<Task<void>(Stream&, int connection)>;
  ScriptServer(ContextThread& context, Script script)
      : listener_(listen(context.executor(), {}).value()), script_(std::move(script)) {
    asio::co_spawn(context.executor(), run(), asio::detached);
  }
  int port() const { return listener_->port(); }
  int connections() const { return connections_; }

 private:
  Task<void> run() {
    for (;;) {
      auto stream = co_await listener_->accept();
      if (!stream) co_return;
      const int index = connections_++;
      asio::co_spawn((*stream)->executor(), handle(std::move(*stream), index), asio::detached);
    }
  }
  Task<void> handle(std::unique_ptr<Stream> stream, int index) { co_await script_(*stream, index); }

  std::unique_ptr<Listener> listener_;
  Script script_;
  std::atomic<int> connections_{0};
};

Task<std::string> read_request(Stream& stream) {
  std::string got;
  std::byte buffer[4096];
  while (got.find("\r\n\r\n") == std::string::npos) {
    auto count = co_await stream.read_some(buffer, 5s);
    if (!count || *count == 0) break;
    got.append(reinterpret_cast<const char*>(buffer), *count);
  }
  co_return got;
}
Task<void> say(Stream& stream, std::string_view text) {
  const auto piece = std::as_bytes(std::span(text));
  (void)co_await stream.write({&piece, 1}, 5s);
}
Task<void> pause(Stream& stream, Duration time) {
  asio::steady_timer timer(stream.executor(), time);
  co_await timer.async_wait(asio::use_awaitable);
}

class Client : public testing::Test {
 protected:
  Result<HttpResponse> get(int port, std::string host = "127.0.0.1") {
    return context_.run(client_->request(to(port, std::move(host))));
  }
  static HttpClientRequest to(int port, std::string host = "127.0.0.1") {
    HttpClientRequest request;
    request.host = std::move(host);
    request.port = port;
    request.head_timeout = request.idle_timeout = 2s;
    return request;
  }
  ContextThread context_;
  std::unique_ptr<HttpClient> client_ = make_http_client(context_.executor());
};

TEST_F(Client, KeepsConnectionsAlive) {
  ScriptServer server(context_, [](Stream& stream, int) -> Task<void> {
    while (!(co_await read_request(stream)).empty())
      co_await say(stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  });
  for (int i = 0; i < 5; ++i) EXPECT_EQ(get(server.port()).value().body, "ok");
  EXPECT_EQ(server.connections(), 1);
}

TEST_F(Client, RetriesOnceWhenAPooledConnectionWasClosed) {
  std::atomic<int> requests{0};
  ScriptServer server(context_, [&](Stream& stream, int connection) -> Task<void> {
    co_await read_request(stream);
    ++requests;
    co_await say(stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    // Closes as the second request arrives, so that the pool can't have seen it.
    if (connection == 0) co_await read_request(stream);
    if (connection == 0) ++requests;
  });
  EXPECT_EQ(get(server.port()).value().body, "ok");
  EXPECT_EQ(get(server.port()).value().body, "ok");
  EXPECT_EQ(server.connections(), 2);
  EXPECT_EQ(requests, 3);
}

TEST_F(Client, DoesNotRetryAFreshConnectionNorAfterAByte) {
  std::atomic<int> requests{0};
  ScriptServer server(context_, [&](Stream& stream, int connection) -> Task<void> {
    co_await read_request(stream);
    ++requests;
    if (connection == 0) co_return;  // fresh, no answer
    co_await say(stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    co_await read_request(stream);
    ++requests;
    co_await say(stream, "HTTP/1.1 2");  // pooled, part of an answer
  });
  EXPECT_EQ(get(server.port()).error().code(), Code::kUnavailable);
  EXPECT_EQ(requests, 1);
  EXPECT_TRUE(get(server.port()));
  EXPECT_EQ(get(server.port()).error().code(), Code::kDataLoss);
  EXPECT_EQ(requests, 3);
  EXPECT_EQ(server.connections(), 2);
}

TEST_F(Client, UnaskedBytesOnAnIdleConnectionAreNotTheNextAnswer) {
  ScriptServer server(context_, [](Stream& stream, int connection) -> Task<void> {
    co_await read_request(stream);
    co_await say(stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    if (connection > 0) co_return;
    co_await pause(stream, 20ms);
    co_await say(stream, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
    co_await pause(stream, 500ms);
  });
  EXPECT_EQ(get(server.port()).value().body, "ok");
  sleep_ms(60);
  EXPECT_EQ(get(server.port()).value().body, "ok");
}

TEST_F(Client, ReadsEveryKindOfBody) {
  const char* answers[] = {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
                           "HTTP/1.1 200 OK\r\n\r\nok", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nok"};
  for (const char* answer : answers) {
    ScriptServer server(context_, [answer](Stream& stream, int) -> Task<void> {
      co_await read_request(stream);
      for (const char* c = answer; *c; ++c) co_await say(stream, {c, 1});
    });
    auto response = get(server.port());
    ASSERT_TRUE(response) << answer << response.error().message();
    EXPECT_EQ(response->body, "ok");
  }
}

TEST_F(Client, CutAndMalformedAnswersAreDataLoss) {
  const char* answers[] = {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok",
                           "HTTP/1.1 200 OK\n\n",
                           "garbage\r\n\r\n",
                           "HTTP/1.1 101 Switching Protocols\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!"};
  for (const char* answer : answers) {
    ScriptServer server(context_, [answer](Stream& stream, int) -> Task<void> {
      co_await read_request(stream);
      co_await say(stream, answer);
    });
    auto response = get(server.port());
    ASSERT_FALSE(response) << answer;
    EXPECT_EQ(response.error().code(), Code::kDataLoss) << answer;
  }
}

TEST_F(Client, DeadlinesHold) {
  ScriptServer server(context_, [](Stream& stream, int connection) -> Task<void> {
    co_await read_request(stream);
    if (connection == 1) co_await say(stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no");
    co_await pause(stream, 1s);
  });
  auto request = to(server.port());
  request.head_timeout = request.idle_timeout = 100ms;
  const TimePoint begin = SteadyClock().now();
  EXPECT_EQ(context_.run(client_->request(request)).error().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(context_.run(client_->request(request)).error().code(), Code::kDeadlineExceeded);
  EXPECT_LT(seconds_between(begin, SteadyClock().now()), 1.0);
}

TEST_F(Client, StreamGivesPiecesAsTheyComeAndCloseCancels) {
  std::atomic<bool> saw_end{false};
  ScriptServer server(context_, [&](Stream& stream, int) -> Task<void> {
    co_await read_request(stream);
    co_await say(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
    std::byte byte;
    auto count = co_await stream.read_some({&byte, 1}, 5s);
    saw_end = !count || *count == 0;
  });
  context_.run([](HttpClient& client, HttpClientRequest request) -> Task<void> {
    auto stream = (co_await client.request_stream(request)).value();
    EXPECT_EQ(stream->status(), 200);
    EXPECT_EQ((co_await stream->read_piece()).value(), "one");
    asio::steady_timer timer(co_await asio::this_coro::executor, 20ms);
    timer.async_wait([&](auto) { stream->close(); });
    EXPECT_EQ((co_await stream->read_piece()).error().code(), Code::kCancelled);
    EXPECT_EQ((co_await stream->read_piece()).error().code(), Code::kCancelled);
  }(*client_, to(server.port())));
  EXPECT_TRUE(wait_until([&] { return saw_end.load(); }, 200));
}

TEST_F(Client, DestroyingAStreamClosesItsConnection) {
  std::atomic<bool> saw_end{false};
  ScriptServer server(context_, [&](Stream& stream, int) -> Task<void> {
    co_await read_request(stream);
    co_await say(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
    std::byte byte;
    auto count = co_await stream.read_some({&byte, 1}, 5s);
    saw_end = !count || *count == 0;
  });
  context_.run([](HttpClient& client, HttpClientRequest request) -> Task<void> {
    auto stream = (co_await client.request_stream(request)).value();
    EXPECT_EQ((co_await stream->read_piece()).value(), "one");
  }(*client_, to(server.port())));
  EXPECT_TRUE(wait_until([&] { return saw_end.load(); }, 200));
}

TEST_F(Client, AnEarlyRefusalOfALargeBodyIsRead) {
  HttpServerOptions options;
  options.max_body_bytes = 1000;
  auto server = serve_http(context_.executor(), options, [](HttpRequest&, HttpResponder&) -> Task<void> { co_return; });
  auto request = to((*server)->port());
  request.method = "POST";
  request.body = std::string(8'000'000, 'x');
  auto response = context_.run(client_->request(request));
  ASSERT_TRUE(response) << response.error().message();
  EXPECT_EQ(response->status, 413);
}

TEST_F(Client, RequestsThatWouldSplitAreRefused) {
  auto request = to(1);
  request.headers.add("X", "a\r\nY: b");
  EXPECT_EQ(context_.run(client_->request(request)).error().code(), Code::kInvalidArgument);
  request = to(1);
  request.target = "/a b";
  EXPECT_EQ(context_.run(client_->request(request)).error().code(), Code::kInvalidArgument);
  request = to(1);
  request.method = "GET /\r\n";
  EXPECT_EQ(context_.run(client_->request(request)).error().code(), Code::kInvalidArgument);
}

TEST_F(Client, SpeaksIpv6) {
  HttpServerOptions options;
  options.listen.host = "::1";
  auto server =
      serve_http(context_.executor(), options, [](HttpRequest& request, HttpResponder& responder) -> Task<void> {
        (void)co_await responder.respond({.body = std::string(*request.headers.get("Host"))});
      });
  ASSERT_TRUE(server);
  const int port = (*server)->port();
  EXPECT_EQ(get(port, "::1").value().body, fmt::format("[::1]:{}", port));
  EXPECT_EQ(get(port, "[::1]").value().body, fmt::format("[::1]:{}", port));
}

TEST_F(Client, BodiesBeyondTheLimitEnd) {
  auto small = make_http_client(context_.executor(), {.max_response_bytes = 10});
  ScriptServer server(context_, [](Stream& stream, int) -> Task<void> {
    co_await read_request(stream);
    co_await say(stream, "HTTP/1.1 200 OK\r\n\r\n" + std::string(1000, 'x'));
  });
  EXPECT_FALSE(context_.run(small->request(to(server.port()))));
}

}  // namespace
}  // namespace baton::net
