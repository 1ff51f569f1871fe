#include "parallel/net/control.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/byte_codec.h"

namespace baton::parallel {
namespace {

constexpr size_t kTextMax = 4000;
constexpr size_t kHeadBytes = 5;  // kind, u32 length of the text

int to_milliseconds(TimePoint until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - SteadyClock().now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

}  // namespace

Result<std::unique_ptr<Control>> Control::start(MeshState& state, std::vector<Descriptor> sockets) {
  Descriptor stopped(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!stopped.open()) return fail(Code::kResourceExhausted, "no descriptor for a mesh: {}", std::strerror(errno));
  const auto silence_ms = std::chrono::duration_cast<std::chrono::milliseconds>(state.options().silence).count();
  const auto bounded_ms = static_cast<unsigned>(std::clamp<int64_t>(silence_ms, 1, INT32_MAX));
  for (const auto& socket : sockets) {
    // Not every kind of socket has it; one that doesn't can't fall silent either.
    if (socket.open()) ::setsockopt(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &bounded_ms, sizeof(bounded_ms));
  }
  auto control = std::unique_ptr<Control>(new Control(state, std::move(sockets), std::move(stopped)));
  control->thread_ = std::thread([raw = control.get()] {
    pthread_setname_np(pthread_self(), "mesh-control");
    raw->run();
  });
  return control;
}

Control::Control(MeshState& state, std::vector<Descriptor> sockets, Descriptor stopped)
    : state_(state), peers_(sockets.size()), stopped_(std::move(stopped)) {
  for (size_t p = 0; p < sockets.size(); ++p) peers_[p].socket = std::move(sockets[p]);
}

Control::~Control() {
  const uint64_t one = 1;
  if (::write(stopped_.get(), &one, sizeof(one)) < 0) return;
  thread_.join();
  // Bytes left unread would turn the end of the connection into a reset, which overtakes our last words.
  std::array<std::byte, 1024> unread;
  for (const auto& peer : peers_) {
    while (peer.socket.open() && ::recv(peer.socket.get(), unread.data(), unread.size(), MSG_DONTWAIT) > 0) {
    }
  }
}

void Control::run() {
  TimePoint next_heartbeat = SteadyClock().now();
  while (!state_.failure()) {
    if (SteadyClock().now() >= next_heartbeat) {
      tell(Kind::kHeartbeat, {});
      next_heartbeat = SteadyClock().now() + state_.options().heartbeat;
    }
    wait(next_heartbeat);
    uint64_t count = 0;
    if (::read(stopped_.get(), &count, sizeof(count)) > 0) return;
    for (int p = 0; p < state_.size(); ++p) {
      if (p != state_.rank()) read(p);
    }
  }
}

void Control::wait(TimePoint until) {
  std::vector<pollfd> set{{.fd = stopped_.get(), .events = POLLIN, .revents = 0}};
  for (const auto& peer : peers_) {
    if (peer.socket.open() && !peer.closed) set.push_back({.fd = peer.socket.get(), .events = POLLIN, .revents = 0});
  }
  ::poll(set.data(), set.size(), to_milliseconds(until));
}

void Control::read(int process) {
  Peer& peer = peers_[static_cast<size_t>(process)];
  std::array<std::byte, 4096> bytes;
  while (!peer.closed) {
    const auto count = ::recv(peer.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count > 0) {
      peer.unread.insert(peer.unread.end(), bytes.begin(), bytes.begin() + count);
      if (take_frames(process)) continue;
      peer.closed = true;
      return lose(state_.lost(process, "its connection carries bytes that are not ours"));
    }
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    peer.closed = true;
    if (count == 0) return lose(state_.lost(process, "its process has ended"));
    if (errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH) {
      return lose(state_.lost(process, fmt::format("its host does not answer ({})", std::strerror(errno))));
    }
    return lose(state_.lost(process, fmt::format("its process or host has ended: {}", std::strerror(errno))));
  }
}

bool Control::take_frames(int process) {
  Peer& peer = peers_[static_cast<size_t>(process)];
  size_t taken = 0;
  while (peer.unread.size() - taken >= kHeadBytes) {
    ByteReader reader(std::span(peer.unread).subspan(taken));
    const auto kind = reader.get<Kind>();
    const auto length = reader.get<uint32_t>();
    if (length > kTextMax || kind < Kind::kHeartbeat || kind > Kind::kOver) return false;
    if (reader.remaining() < length) break;
    const auto text = reader.get_bytes(length);
    take_frame(process, kind, {reinterpret_cast<const char*>(text.data()), text.size()});
    taken += kHeadBytes + length;
  }
  peer.unread.erase(peer.unread.begin(), peer.unread.begin() + static_cast<std::ptrdiff_t>(taken));
  return true;
}

void Control::take_frame(int process, Kind kind, std::string_view text) {
  if (kind == Kind::kLeaving) lose(state_.left(process, text));
  // Passed on: a member that hears of it and ends at once must not look like the first to be lost.
  if (kind == Kind::kOver) lose(Status(Code::kUnavailable, std::string(text)));
}

void Control::lose(const Status& status) {
  if (state_.fail(status)) tell_over(status);
}

void Control::tell_over(const Status& status) { tell(Kind::kOver, status.message()); }

void Control::tell_leaving(const std::string& reason) {
  tell(Kind::kLeaving, reason);
  for (const auto& peer : peers_) {
    if (peer.socket.open()) ::shutdown(peer.socket.get(), SHUT_WR);
  }
}

void Control::tell(Kind kind, std::string_view text) {
  text = text.substr(0, kTextMax);
  ByteWriter frame;
  frame.put(kind);
  frame.put_string(text);
  std::lock_guard lock(writing_);
  for (const auto& peer : peers_) {
    if (!peer.socket.open()) continue;
    const auto bytes = frame.view();
    // A peer that has read nothing for so long that its buffers are full is stopped: it would not read this either.
    if (::send(peer.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) continue;
  }
}

}  // namespace baton::parallel
