// Listening sockets: TCP over IPv4 and IPv6, Unix, with or without TLS. One executor; accept() by one coroutine.
#include <netdb.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstring>
#include <deque>
#include <optional>

#include "net/socket_stream.h"

namespace baton::net {
namespace {

using asio::ip::tcp;
using boost::system::error_code;
using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;
using Endpoint = asio::generic::stream_protocol::endpoint;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr int kMaxHandshakes = 256;  // under way or waiting for accept(); further clients wait in the kernel
constexpr Duration kHandshakeTimeout = std::chrono::seconds(10);

// What the listener and the coroutines it started share; the coroutines may outlive it by a turn of the executor.
struct ListenerState {
  explicit ListenerState(const asio::any_io_executor& executor) : acceptor(executor), changed(executor) {}
  Acceptor acceptor;
  std::function<asio::any_io_executor()> stream_executor;
  TlsContext tls;
  std::string unix_path;
  bool closed = false;
  // TLS only: hand-shaken streams wait here, so that one slow client never keeps others from being accepted.
  asio::steady_timer changed;
  std::deque<std::unique_ptr<Stream>> ready;
  int handshakes = 0;
  bool accepting = false;
  std::optional<Status> failure;
};
using State = std::shared_ptr<ListenerState>;

Task<Result<Socket>> accept_socket(State state) {
  const auto executor = state->stream_executor ? state->stream_executor() : state->acceptor.get_executor();
  auto [error, accepted] = co_await state->acceptor.async_accept(executor, kAwait);
  if (state->closed) co_return fail(Code::kCancelled, "the listener is closed");
  if (error == asio::error::no_descriptors || error == asio::error::no_buffer_space || error == asio::error::no_memory)
    co_return fail(Code::kResourceExhausted, "accepting a connection: {}; raise the limit of open files",
                   error.message());
  if (error) co_return fail(Code::kUnavailable, "accepting a connection: {}", error.message());
  Socket socket(std::move(accepted));
  if (state->unix_path.empty()) {
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
  }
  co_return std::move(socket);
}

Task<void> shake_hands(State state, Socket socket) {
  const std::string peer = peer_name(socket);
  auto stream = co_await make_tls_stream(std::move(socket), peer, state->tls, false, "", kHandshakeTimeout);
  asio::post(state->acceptor.get_executor(), [state, stream = std::move(stream)]() mutable {
    --state->handshakes;
    if (stream) state->ready.push_back(std::move(*stream));
    state->changed.cancel();
  });
}

Task<void> accept_tls(State state) {
  while (!state->closed) {
    if (state->handshakes + static_cast<int>(state->ready.size()) >= kMaxHandshakes) {
      asio::steady_timer pause(state->acceptor.get_executor(), std::chrono::milliseconds(20));
      co_await pause.async_wait(kAwait);
      continue;
    }
    auto socket = co_await accept_socket(state);
    if (!socket) {
      state->failure = socket.error();
      break;
    }
    ++state->handshakes;
    const auto executor = socket->get_executor();
    asio::co_spawn(executor, shake_hands(state, std::move(*socket)), asio::detached);
  }
  state->accepting = false;
  state->changed.cancel();
}

class SocketListener final : public Listener {
 public:
  SocketListener(State state, int port) : state_(std::move(state)), port_(port) {}
  ~SocketListener() override { close(); }

  Task<Result<std::unique_ptr<Stream>>> accept() override {
    const State state = state_;
    if (state->tls) co_return co_await accept_shaken(state);
    BATON_CO_TRY_ASSIGN(auto socket, co_await accept_socket(state));
    const std::string peer = peer_name(socket);
    co_return make_socket_stream(std::move(socket), peer);
  }
  int port() const override { return port_; }
  void close() override {
    if (std::exchange(state_->closed, true)) return;
    error_code ignored;
    state_->acceptor.close(ignored);
    state_->changed.cancel();
    if (!state_->unix_path.empty()) ::unlink(state_->unix_path.c_str());
  }

 private:
  static Task<Result<std::unique_ptr<Stream>>> accept_shaken(State state) {
    for (;;) {
      if (state->closed) co_return fail(Code::kCancelled, "the listener is closed");
      if (!state->ready.empty()) {
        auto stream = std::move(state->ready.front());
        state->ready.pop_front();
        co_return stream;
      }
      if (auto failure = std::exchange(state->failure, std::nullopt)) co_return fail(*failure);
      if (!std::exchange(state->accepting, true))
        asio::co_spawn(state->acceptor.get_executor(), accept_tls(state), asio::detached);
      state->changed.expires_after(std::chrono::hours(1));
      co_await state->changed.async_wait(kAwait);
    }
  }

  State state_;
  int port_;
};

struct AddressList {
  addrinfo* first = nullptr;
  ~AddressList() {
    if (first) ::freeaddrinfo(first);
  }
};

Result<Endpoint> tcp_endpoint(std::string host, int port) {
  if (port < 0 || port > 65535) return fail(Code::kInvalidArgument, "port {} is not from 0 to 65535", port);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty()) return fail(Code::kInvalidArgument, "no host to listen on; use 127.0.0.1, 0.0.0.0 or ::");
  AddressList list;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list.first); error != 0)
    return fail(Code::kInvalidArgument, "can't listen on host '{}': {}", host, ::gai_strerror(error));
  const addrinfo* chosen = list.first;
  for (const addrinfo* each = list.first; each; each = each->ai_next)
    if (each->ai_family == AF_INET) {
      chosen = each;
      break;
    }
  return Endpoint(chosen->ai_addr, chosen->ai_addrlen, IPPROTO_TCP);
}

// A socket file that nobody listens on is left over from a process that died: it is removed.
Result<Endpoint> unix_endpoint(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    return fail(Code::kInvalidArgument, "the Unix socket path '{}' is longer than {} bytes", path,
                sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  struct stat status{};
  if (::lstat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode))
      return fail(Code::kAlreadyExists, "'{}' exists and is not a socket; choose another path", path);
    const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const bool alive = ::connect(probe, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 || errno == EAGAIN;
    ::close(probe);
    if (alive) return fail(Code::kAlreadyExists, "another process listens on the Unix socket '{}'", path);
    ::unlink(path.c_str());
  }
  return Endpoint(&address, sizeof(address), 0);
}

Result<void> open_and_bind(Acceptor& acceptor, const Endpoint& endpoint, const std::string& where) {
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (error) return fail(Code::kUnavailable, "can't open a socket for {}: {}", where, error.message());
  if (endpoint.protocol().family() != AF_UNIX) acceptor.set_option(Acceptor::reuse_address(true), error);
  if (endpoint.protocol().family() == AF_INET6) acceptor.set_option(asio::ip::v6_only(false), error);
  acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error == asio::error::address_in_use)
    return fail(Code::kAlreadyExists, "{} is taken by another process; stop it or choose another port", where);
  if (error == asio::error::access_denied)
    return fail(Code::kInvalidArgument, "no permission to listen on {}; choose another port or path", where);
  if (error) return fail(Code::kInvalidArgument, "can't listen on {}: {}", where, error.message());
  return {};
}

int bound_port(Acceptor& acceptor) {
  error_code error;
  const Endpoint local = acceptor.local_endpoint(error);
  if (error) return 0;
  const auto* address = reinterpret_cast<const sockaddr*>(local.data());
  if (address->sa_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port);
  if (address->sa_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(address)->sin6_port);
  return 0;
}

}  // namespace

Result<std::unique_ptr<Listener>> listen(asio::any_io_executor executor, const ListenOptions& options) {
  auto state = std::make_shared<ListenerState>(executor);
  state->stream_executor = options.stream_executor;
  state->unix_path = options.unix_path;
  if (options.tls) {
    BATON_TRY_ASSIGN(state->tls, make_server_context(*options.tls));
  }
  const bool is_unix = !options.unix_path.empty();
  BATON_TRY_ASSIGN(const auto endpoint,
                   is_unix ? unix_endpoint(options.unix_path) : tcp_endpoint(options.host, options.port));
  const std::string where = is_unix ? "unix:" + options.unix_path : format_host_port(options.host, options.port);
  BATON_TRY(open_and_bind(state->acceptor, endpoint, where));
  const int port = bound_port(state->acceptor);
  return std::make_unique<SocketListener>(std::move(state), port);
}

}  // namespace baton::net
