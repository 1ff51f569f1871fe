#include "net/socket_stream.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <vector>

namespace baton::net {
namespace {

using boost::system::error_code;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr TimePoint kNever = TimePoint::max();

// One direction's deadline and the way to cut its pending operation short.
struct Direction {
  TimePoint deadline = kNever;
  bool expired = false;
  asio::cancellation_signal cancel;
};

// The one timer of a stream. The stream owns it; its callbacks hold a weak reference.
class Watchdog : public std::enable_shared_from_this<Watchdog> {
 public:
  explicit Watchdog(asio::any_io_executor executor) : timer_(std::move(executor)) {}

  void begin(Direction& direction, Duration timeout) {
    direction.expired = false;
    if (timeout == kNoTimeout) return;
    direction.deadline = deadline_after(timeout);
    if (direction.deadline < armed_for_) arm(direction.deadline);
  }
  void end(Direction& direction) { direction.deadline = kNever; }
  void stop() {
    armed_for_ = kNever;
    timer_.cancel();
  }

  Direction read, write;

 private:
  void arm(TimePoint when) {
    armed_for_ = when;
    timer_.expires_at(when);
    timer_.async_wait([weak = weak_from_this()](error_code error) {
      if (const auto self = weak.lock(); self && !error) self->fire();
    });
  }
  void fire() {
    const TimePoint now = SteadyClock().now();
    armed_for_ = kNever;
    for (Direction* direction : {&read, &write}) {
      if (direction->deadline > now) continue;
      direction->deadline = kNever;
      direction->expired = true;
      direction->cancel.emit(asio::cancellation_type::all);
    }
    if (const TimePoint next = std::min(read.deadline, write.deadline); next != kNever) arm(next);
  }

  asio::steady_timer timer_;
  TimePoint armed_for_ = kNever;
};

bool is_end(const error_code& error) { return error == asio::error::eof; }

short poll_now(int descriptor, short events) {
  pollfd poll_set{.fd = descriptor, .events = events, .revents = 0};
  return descriptor >= 0 && ::poll(&poll_set, 1, 0) > 0 ? poll_set.revents : short{0};
}

// `Layer` is Socket or ssl::stream<Socket>.
template <typename Layer>
class SocketStream final : public Stream {
 public:
  template <typename... Args>
  explicit SocketStream(std::string peer, Args&&... args)
      : peer_(std::move(peer)),
        layer_(std::forward<Args>(args)...),
        watchdog_(std::make_shared<Watchdog>(layer_.get_executor())) {}
  ~SocketStream() override { close(); }

  Task<Result<size_t>> read_some(std::span<std::byte> into, Duration timeout) override {
    if (closed_) co_return fail(Code::kCancelled, "the stream to {} is closed", peer_);
    const auto watchdog = watchdog_;  // outlives this stream, should it be destroyed meanwhile
    watchdog->begin(watchdog->read, timeout);
    auto [error, count] = co_await layer_.async_read_some(
        asio::buffer(into.data(), into.size()), asio::bind_cancellation_slot(watchdog->read.cancel.slot(), kAwait));
    watchdog->end(watchdog->read);
    if (!error || count > 0) co_return count;
    if (is_end(error)) co_return size_t{0};
    co_return failure(error, watchdog->read, "reading from");
  }

  Task<Result<void>> write(std::span<const std::span<const std::byte>> pieces, Duration timeout) override {
    if (closed_) co_return fail(Code::kCancelled, "the stream to {} is closed", peer_);
    std::vector<asio::const_buffer> buffers;
    buffers.reserve(pieces.size());
    for (const auto& piece : pieces)
      if (!piece.empty()) buffers.emplace_back(piece.data(), piece.size());
    size_t first = 0;
    if (error_code error = write_at_once(buffers, first)) co_return failure(error, watchdog_->write, "writing to");
    if (first == buffers.size()) co_return Result<void>();
    const auto watchdog = watchdog_;
    watchdog->begin(watchdog->write, timeout);
    error_code error;
    while (first < buffers.size() && !error) {
      size_t count = 0;
      std::tie(error, count) =
          co_await layer_.async_write_some(std::span<const asio::const_buffer>(buffers).subspan(first),
                                           asio::bind_cancellation_slot(watchdog->write.cancel.slot(), kAwait));
      consume(buffers, first, count);
    }
    watchdog->end(watchdog->write);
    if (error) co_return failure(error, watchdog->write, "writing to");
    co_return Result<void>();
  }

  Task<Result<void>> shutdown_write(Duration timeout) override {
    if (closed_) co_return fail(Code::kCancelled, "the stream to {} is closed", peer_);
    if constexpr (kTls) {
      const auto watchdog = watchdog_;
      watchdog->begin(watchdog->write, timeout);
      co_await layer_.async_shutdown(asio::bind_cancellation_slot(watchdog->write.cancel.slot(), kAwait));
      watchdog->end(watchdog->write);
    }
    error_code error;
    socket().shutdown(Socket::shutdown_send, error);
    if (error) co_return fail(Code::kUnavailable, "{}: {}", peer_, error.message());
    co_return Result<void>();
  }

  // Only for TLS, once, before any other operation.
  Task<Result<void>> handshake(asio::ssl::stream_base::handshake_type type, Duration timeout)
    requires(!std::is_same_v<Layer, Socket>)
  {
    const auto watchdog = watchdog_;
    watchdog->begin(watchdog->read, timeout);
    auto [error] =
        co_await layer_.async_handshake(type, asio::bind_cancellation_slot(watchdog->read.cancel.slot(), kAwait));
    watchdog->end(watchdog->read);
    if (error) co_return failure(error, watchdog->read, "TLS handshake with");
    co_return Result<void>();
  }

  void close() override {
    if (std::exchange(closed_, true)) return;
    watchdog_->stop();
    error_code ignored;
    socket().close(ignored);
  }
  asio::any_io_executor executor() override { return layer_.get_executor(); }
  std::string peer() const override { return peer_; }
  bool quiet() const override { return poll_now(descriptor(), POLLIN | POLLRDHUP) == 0; }
  bool peer_hung_up() const override { return poll_now(descriptor(), POLLRDHUP) != 0; }
  int descriptor() const override { return closed_ ? -1 : const_cast<SocketStream*>(this)->socket().native_handle(); }
  int release() override {
    if constexpr (!kTls) {
      if (std::exchange(closed_, true)) return -1;
      watchdog_->stop();
      error_code error;
      const int released = layer_.release(error);
      return error ? -1 : released;
    }
    return -1;
  }
  Layer& layer() { return layer_; }

 private:
  static constexpr bool kTls = !std::is_same_v<Layer, Socket>;

  auto& socket() { return layer_.lowest_layer(); }

  // Most writes fit the socket's buffer: one system call, no suspension.
  error_code write_at_once(std::vector<asio::const_buffer>& buffers, size_t& first) {
    error_code error;
    if constexpr (!kTls) {
      const size_t count = layer_.write_some(buffers, error);
      consume(buffers, first, count);
      if (error == asio::error::would_block || error == asio::error::try_again) error.clear();
    }
    return error;
  }

  static void consume(std::vector<asio::const_buffer>& buffers, size_t& first, size_t count) {
    while (first < buffers.size() && count >= buffers[first].size()) count -= buffers[first++].size();
    if (count > 0) buffers[first] += count;
  }

  std::unexpected<Status> failure(const error_code& error, const Direction& direction, std::string_view doing) const {
    if (direction.expired) return fail(Code::kDeadlineExceeded, "{} {}: timed out", doing, peer_);
    if (error == asio::error::operation_aborted || error == asio::error::bad_descriptor)
      return fail(Code::kCancelled, "{} {}: closed here", doing, peer_);
    return fail(Code::kUnavailable, "{} {}: {}", doing, peer_, error.message());
  }

  std::string peer_;
  Layer layer_;
  std::shared_ptr<Watchdog> watchdog_;
  bool closed_ = false;
};

}  // namespace

std::unique_ptr<Stream> make_socket_stream(Socket socket, std::string peer) {
  error_code ignored;
  socket.non_blocking(true, ignored);
  return std::make_unique<SocketStream<Socket>>(std::move(peer), std::move(socket));
}

Task<Result<std::unique_ptr<Stream>>> make_tls_stream(Socket socket, std::string peer, TlsContext context, bool client,
                                                      std::string server_name, Duration timeout) {
  namespace ssl = asio::ssl;
  error_code ignored;
  socket.non_blocking(true, ignored);
  auto stream = std::make_unique<SocketStream<ssl::stream<Socket>>>(std::move(peer), std::move(socket), *context);
  if (client) {
    SSL* handle = stream->layer().native_handle();
    error_code is_name;
    asio::ip::make_address(server_name, is_name);
    // SNI carries names only, never addresses (RFC 6066).
    if (is_name && SSL_set_tlsext_host_name(handle, server_name.c_str()) != 1)
      co_return fail(Code::kInvalidArgument, "'{}' can't be sent as a TLS server name", server_name);
    if (SSL_get_verify_mode(handle) & SSL_VERIFY_PEER)
      stream->layer().set_verify_callback(ssl::host_name_verification(server_name), ignored);
  }
  const auto type = client ? ssl::stream_base::client : ssl::stream_base::server;
  auto shaken = co_await stream->handshake(type, timeout);
  if (!shaken) co_return fail(shaken.error());
  co_return std::unique_ptr<Stream>(std::move(stream));
}

std::string peer_name(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::getpeername(const_cast<Socket&>(socket).native_handle(), generic, &size) != 0) return "unknown";
  if (address.ss_family == AF_UNIX) return "unix";
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (::getnameinfo(generic, size, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "unknown";
  return format_host_port(host, std::atoi(port));
}

}  // namespace baton::net
