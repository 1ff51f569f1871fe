// A byte stream with deadlines: plain TCP, TLS, or the in-memory twin. One coroutine reads and one writes at a time.
//
// Asio appears here and in what includes this: net, transport, server, proxy. Keep it out of other rooms' headers.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace baton::net {

namespace asio = boost::asio;
template <typename T>
using Task = asio::awaitable<T>;

// A timeout that never ends.
inline constexpr Duration kNoTimeout = Duration::max();
// The point `timeout` from now; far in the future for kNoTimeout.
TimePoint deadline_after(Duration timeout);

class Stream {
 public:
  virtual ~Stream() = default;
  // At least one byte, or 0 at an orderly end. kDeadlineExceeded after `timeout`, kUnavailable when the peer has gone.
  virtual Task<Result<size_t>> read_some(std::span<std::byte> into, Duration timeout) = 0;
  // All of `pieces`, in order, with as few system calls as there can be.
  virtual Task<Result<void>> write(std::span<const std::span<const std::byte>> pieces, Duration timeout) = 0;
  // Ends both directions; pending reads and writes fail with kCancelled. Idempotent; safe from the stream's executor.
  virtual void close() = 0;
  virtual asio::any_io_executor executor() = 0;
  virtual std::string peer() const = 0;  // "127.0.0.1:4711", "[::1]:4711", "memory"
  // Says that no more will be written (FIN; over TLS close_notify first). Reading goes on.
  virtual Task<Result<void>> shutdown_write(Duration /*timeout*/) { co_return Result<void>(); }
  // True while the peer neither closed nor sent anything that waits to be read; costs one poll(2).
  virtual bool quiet() const { return true; }
  // True once the peer has closed or reset its side, even while bytes before that wait to be read.
  virtual bool peer_hung_up() const { return false; }
  // Of the socket below, to ask the system about it; -1 when there is none or it is closed.
  virtual int descriptor() const { return -1; }
  // Gives a plain socket up, with no operation pending, to one who goes on without Asio: its descriptor, non-blocking;
  // the stream is closed. -1 when there is none.
  virtual int release() { return -1; }
};

// Reads exactly into.size() bytes; kUnavailable when the stream ends before.
Task<Result<void>> read_exactly(Stream& stream, std::span<std::byte> into, Duration timeout);

// Two ends of an in-memory stream on one executor, each buffering up to `capacity` bytes.
std::pair<std::unique_ptr<Stream>, std::unique_ptr<Stream>> make_memory_streams(asio::any_io_executor executor,
                                                                                size_t capacity = 64 * 1024);

struct TlsOptions {
  std::string cert_file, key_file;  // a server's own, or a client's for mutual TLS
  std::string ca_file;              // whom to trust; empty: the system's
  bool verify_peer = true;          // a client checks the server (and its name); a server asks for a client certificate
  bool enabled() const { return !cert_file.empty() || !ca_file.empty(); }
};

// Whether a client could use them: kInvalidArgument names the file that is wrong. For starts, so that a typing error is
// not found at the first connection.
Result<void> check_client_tls(const TlsOptions& options);

struct ConnectOptions {
  std::string host;  // name, IPv4, or IPv6 with or without brackets
  int port = 0;
  Duration timeout = std::chrono::seconds(5);
  const TlsOptions* tls = nullptr;  // not null: TLS
  // Not empty: only addresses that it allows are connected to. It is asked with `host` and each address it resolved to,
  // as numbers, so that a name can't lead elsewhere between a check and its use. None allowed: kInvalidArgument.
  std::function<bool(std::string_view host, std::string_view address)> allow = nullptr;
};
// Resolves, connects (all addresses in turn), sets TCP_NODELAY, shakes hands.
Task<Result<std::unique_ptr<Stream>>> connect(ConnectOptions options);

// A bound listening socket. accept() yields plain or TLS streams, hand-shaken.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual Task<Result<std::unique_ptr<Stream>>> accept() = 0;
  virtual int port() const = 0;  // the one chosen when 0 was asked for
  virtual void close() = 0;
};
struct ListenOptions {
  std::string host = "127.0.0.1";  // "0.0.0.0", "::" (both families) and names too
  int port = 0;
  std::string unix_path;  // instead of host and port; a stale socket file is replaced
  const TlsOptions* tls = nullptr;
  // Where each accepted stream lives, such as a strand of its own. Empty: the listener's executor.
  std::function<asio::any_io_executor()> stream_executor;
};
// kAlreadyExists when the port is taken (the message says by what address), kInvalidArgument for a bad host.
// A name binds its first IPv4 address, or else its first IPv6 one.
Result<std::unique_ptr<Listener>> listen(asio::any_io_executor executor, const ListenOptions& options);

// "host:port", "[v6]:port", "host" -> parts. kInvalidArgument says what is wrong.
struct HostPort {
  std::string host;
  int port = 0;
};
Result<HostPort> parse_host_port(std::string_view text, int default_port = 0);
std::string format_host_port(std::string_view host, int port);  // brackets IPv6

}  // namespace baton::net
