#include "transport/copy_limits.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace baton::transport {
namespace {

constexpr size_t kStep = size_t{1} << 20;

// A descriptor that closes itself.
struct Socket {
  explicit Socket(int number) : fd(number) {}
  ~Socket() {
    if (fd >= 0) close(fd);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd;
};

void send_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), std::min(kStep, bytes.size()), MSG_NOSIGNAL);
    if (sent <= 0) break;
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  shutdown(fd, SHUT_WR);
}

size_t receive_all(int fd) {
  std::vector<std::byte> buffer(kStep);
  size_t got = 0;
  for (ssize_t n; (n = recv(fd, buffer.data(), buffer.size(), 0)) > 0;) got += static_cast<size_t>(n);
  return got;
}

}  // namespace

void stream_copy(const std::byte* from, std::byte* to, size_t bytes) {
#if defined(__x86_64__)
  for (size_t at = 0; at + 64 <= bytes; at += 64) {
    for (size_t lane = 0; lane < 64; lane += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at + lane),
                       _mm_load_si128(reinterpret_cast<const __m128i*>(from + at + lane)));
    }
  }
  _mm_sfence();
#else
  std::memcpy(to, from, bytes / 64 * 64);
#endif
}

Result<double> loopback_tcp_seconds(std::span<const std::byte> bytes) {
  const Socket listener(socket(AF_INET, SOCK_STREAM, 0)), sender(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  if (bind(listener.fd, any, size) != 0 || listen(listener.fd, 1) != 0 || getsockname(listener.fd, any, &size) != 0 ||
      connect(sender.fd, any, size) != 0) {
    return fail(Code::kUnavailable, "no loopback TCP connection: {}", std::strerror(errno));
  }
  const Socket receiver(accept(listener.fd, nullptr, nullptr));
  if (receiver.fd < 0) return fail(Code::kUnavailable, "no loopback TCP connection: {}", std::strerror(errno));
  const SteadyClock clock;
  const TimePoint begin = clock.now();
  std::jthread thread([&] { send_all(sender.fd, bytes); });
  const size_t got = receive_all(receiver.fd);
  const double seconds = seconds_between(begin, clock.now());
  if (got != bytes.size()) return fail(Code::kUnavailable, "loopback TCP lost its connection at byte {}", got);
  return seconds;
}

}  // namespace baton::transport
