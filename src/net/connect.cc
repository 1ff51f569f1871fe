// connect(): resolving, trying each address in turn, TLS. Coroutines on the caller's executor.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>

#include "net/socket_stream.h"

namespace baton::net {
namespace {

using asio::ip::tcp;
using boost::system::error_code;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

// The outcome of an operation that may be abandoned: whoever waits leaves when `done` is cancelled or expires.
template <typename T>
struct Pending {
  explicit Pending(const asio::any_io_executor& executor) : done(executor) {}
  asio::steady_timer done;
  std::optional<error_code> error;
  T value;
};

std::string without_brackets(const std::string& host) {
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

// A name server that hangs blocks Asio's resolver thread, not the caller: the wait is abandoned at the deadline.
Task<Result<std::vector<tcp::endpoint>>> resolve(std::string host, int port, TimePoint deadline) {
  error_code not_numeric;
  const auto address = asio::ip::make_address(host, not_numeric);
  if (!not_numeric) co_return std::vector{tcp::endpoint(address, static_cast<uint16_t>(port))};
  const auto executor = co_await asio::this_coro::executor;
  auto resolver = std::make_shared<tcp::resolver>(executor);
  auto pending = std::make_shared<Pending<std::vector<tcp::endpoint>>>(executor);
  pending->done.expires_at(deadline);
  resolver->async_resolve(host, std::to_string(port),
                          [pending, resolver](error_code error, const tcp::resolver::results_type& results) {
                            for (const auto& entry : results) pending->value.push_back(entry.endpoint());
                            pending->error = error;
                            pending->done.cancel();
                          });
  if (!pending->error) co_await pending->done.async_wait(kAwait);
  if (!pending->error) {
    resolver->cancel();
    co_return fail(Code::kDeadlineExceeded, "the name '{}' was not resolved in time", host);
  }
  if (*pending->error || pending->value.empty())
    co_return fail(Code::kUnavailable, "the name '{}' can't be resolved: {}", host, pending->error->message());
  co_return std::move(pending->value);
}

Task<Result<Socket>> connect_one(tcp::endpoint endpoint, TimePoint deadline) {
  const auto executor = co_await asio::this_coro::executor;
  auto socket = std::make_shared<tcp::socket>(executor);
  asio::steady_timer timer(executor, deadline);
  timer.async_wait([socket](error_code error) {
    error_code ignored;
    if (!error) socket->close(ignored);
  });
  auto [error] = co_await socket->async_connect(endpoint, kAwait);
  timer.cancel();
  const auto where = format_host_port(endpoint.address().to_string(), endpoint.port());
  if (SteadyClock().now() >= deadline && (error || !socket->is_open()))
    co_return fail(Code::kDeadlineExceeded, "connecting to {}: timed out", where);
  if (error) co_return fail(Code::kUnavailable, "connecting to {}: {}", where, error.message());
  error_code ignored;
  socket->set_option(tcp::no_delay(true), ignored);
  co_return Socket(std::move(*socket));
}

}  // namespace

Task<Result<std::unique_ptr<Stream>>> connect_with(ConnectOptions options, TlsContext context) {
  const TimePoint deadline = deadline_after(options.timeout);
  const std::string host = without_brackets(options.host);
  if (host.empty() || options.port <= 0 || options.port > 65535)
    co_return fail(Code::kInvalidArgument, "can't connect to host '{}', port {}", options.host, options.port);
  BATON_CO_TRY_ASSIGN(const auto endpoints, co_await resolve(host, options.port, deadline));
  std::optional<Status> last;
  for (const auto& endpoint : endpoints) {
    if (const auto address = endpoint.address().to_string(); options.allow && !options.allow(host, address)) {
      if (!last) last = Status(Code::kInvalidArgument, fmt::format("{} ({}) is not an allowed peer", host, address));
      continue;
    }
    auto socket = co_await connect_one(endpoint, deadline);
    if (!socket) {
      last = socket.error();
      continue;
    }
    const std::string peer = peer_name(*socket);
    if (!context) co_return make_socket_stream(std::move(*socket), peer);
    co_return co_await make_tls_stream(std::move(*socket), peer, context, true, host, deadline - SteadyClock().now());
  }
  co_return fail(*last);
}

Task<Result<std::unique_ptr<Stream>>> connect(ConnectOptions options) {
  TlsContext context;
  if (options.tls) {
    BATON_CO_TRY_ASSIGN(context, make_client_context(*options.tls));
  }
  co_return co_await connect_with(std::move(options), std::move(context));
}

}  // namespace baton::net
