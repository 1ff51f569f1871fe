#include "net/http_server.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <mutex>
#include <unordered_map>

#include "base/log.h"
#include "net/http_connection.h"

namespace baton::net {
namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr int kMaxRejecting = 256;
constexpr Duration kRejectTimeout = std::chrono::milliseconds(500);

// Shared by the server object and the coroutines that it started, which may outlive it by a turn of the executor.
struct ServerState {
  asio::any_io_executor accept_executor;
  std::unique_ptr<Listener> listener;
  std::shared_ptr<HttpConnection::Shared> shared = std::make_shared<HttpConnection::Shared>();
  std::atomic<int> rejecting{0};

  std::mutex mutex;  // guards what follows: connections end on their own strands
  std::unordered_map<HttpConnection*, std::weak_ptr<HttpConnection>> connections;
  bool closed = false;

  std::vector<std::shared_ptr<HttpConnection>> all() {
    std::lock_guard lock(mutex);
    std::vector<std::shared_ptr<HttpConnection>> alive;
    for (const auto& [key, weak] : connections)
      if (auto connection = weak.lock()) alive.push_back(std::move(connection));
    return alive;
  }
};
using State = std::shared_ptr<ServerState>;

Task<void> reject(State state, std::unique_ptr<Stream> stream) {
  constexpr std::string_view kAnswer =
      "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Type: application/json\r\n"
      "Content-Length: 97\r\nConnection: close\r\n\r\n"
      R"({"error":{"message":"too many connections","type":"Service Unavailable","param":null,"code":503}})";
  const std::span<const std::byte> piece = std::as_bytes(std::span(kAnswer));
  std::byte dropped[4096];
  if (co_await stream->write({&piece, 1}, kRejectTimeout) && co_await stream->shutdown_write(kRejectTimeout))
    // What the client sent is read, so that closing does not reset the answer away.
    for (int i = 0; i < 16; ++i)
      if (auto count = co_await stream->read_some(dropped, kRejectTimeout); !count || *count == 0) break;
  stream->close();
  state->rejecting.fetch_sub(1);
}

void take_on(const State& state, std::unique_ptr<Stream> stream) {
  const auto executor = stream->executor();
  if (state->shared->open.load() >= state->shared->options.max_connections) {
    if (state->rejecting.load() >= kMaxRejecting) return;
    state->rejecting.fetch_add(1);
    asio::co_spawn(executor, reject(state, std::move(stream)), asio::detached);
    return;
  }
  auto connection = std::make_shared<HttpConnection>(std::move(stream), state->shared);
  {
    std::lock_guard lock(state->mutex);
    if (state->closed) return;
    state->connections.emplace(connection.get(), connection);
  }
  connection->start([state, key = connection.get()] {
    std::lock_guard lock(state->mutex);
    state->connections.erase(key);
  });
}

Task<void> accept_loop(State state) {
  for (;;) {
    auto stream = co_await state->listener->accept();
    if (stream) {
      take_on(state, std::move(*stream));
      continue;
    }
    if (stream.error().code() == Code::kCancelled) co_return;
    log_warning("event=accept_failed error=\"{}\"", stream.error().message());
    asio::steady_timer pause(state->accept_executor, std::chrono::milliseconds(100));
    co_await pause.async_wait(kAwait);
  }
}

class AsioHttpServer final : public HttpServer {
 public:
  AsioHttpServer(State state, int port) : state_(std::move(state)), port_(port) {}
  ~AsioHttpServer() override { close(); }

  int port() const override { return port_; }
  void stop_accepting() override {
    if (state_->shared->draining.exchange(true)) return;
    asio::post(state_->accept_executor, [state = state_] { state->listener->close(); });
    for (const auto& connection : state_->all()) connection->close_if_idle();
  }
  void close() override {
    stop_accepting();
    {
      std::lock_guard lock(state_->mutex);
      if (std::exchange(state_->closed, true)) return;
    }
    for (const auto& connection : state_->all()) connection->close();
  }
  int open_connections() const override { return state_->shared->open.load(); }

 private:
  State state_;
  int port_;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> serve_http(asio::any_io_executor executor, HttpServerOptions options,
                                               HttpHandler handler) {
  auto state = std::make_shared<ServerState>();
  state->shared->options = std::move(options);
  state->shared->handler = std::move(handler);
  auto& kept = state->shared->options;
  ListenOptions listening = kept.listen;
  if (kept.tls.enabled()) listening.tls = &kept.tls;
  state->accept_executor = executor;
  if (!kept.one_thread) {
    state->accept_executor = asio::make_strand(executor);
    listening.stream_executor = [executor]() -> asio::any_io_executor { return asio::make_strand(executor); };
  }
  BATON_TRY_ASSIGN(state->listener, listen(state->accept_executor, listening));
  const int port = state->listener->port();
  asio::co_spawn(state->accept_executor, accept_loop(state), asio::detached);
  return std::make_unique<AsioHttpServer>(std::move(state), port);
}

}  // namespace baton::net
