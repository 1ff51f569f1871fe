#include "parallel/net/net_lanes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace baton::parallel {
namespace {

// Milliseconds for poll(2), rounded up so that a wait doesn't end before its time.
int poll_timeout(TimePoint until) {
  if (until == TimePoint::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - SteadyClock().now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
}

void add_one(const Descriptor& event) {
  const uint64_t one = 1;
  if (::write(event.get(), &one, sizeof(one)) < 0) return;  // full: it is set already
}

class NetLanes final : public Lanes {
 public:
  NetLanes(std::vector<Descriptor> sockets, Descriptor nudged, Descriptor stopped)
      : sockets_(std::move(sockets)), nudged_(std::move(nudged)), stopped_(std::move(stopped)) {}

  Result<size_t> write_some(int process, std::span<const std::byte> bytes) override {
    const auto count = ::send(socket(process), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) return static_cast<size_t>(count);
    if (errno == EAGAIN || errno == EINTR) return 0;
    return fail(Code::kUnavailable, "writing to its connection: {}", std::strerror(errno));
  }

  Result<size_t> read_some(int process, std::span<std::byte> into) override {
    const auto count = ::recv(socket(process), into.data(), into.size(), MSG_DONTWAIT);
    if (count > 0) return static_cast<size_t>(count);
    if (count == 0) return fail(Code::kUnavailable, "it closed its connection");
    if (errno == EAGAIN || errno == EINTR) return 0;
    return fail(Code::kUnavailable, "reading from its connection: {}", std::strerror(errno));
  }

  uint32_t ticket(Side /*side*/) override { return 0; }

  void wait(Side side, uint32_t /*ticket*/, std::span<const Want> wants, Until /*what*/, TimePoint until) override {
    std::vector<pollfd> set;
    set.reserve(wants.size() + 2);
    set.push_back({.fd = stopped_.get(), .events = POLLIN, .revents = 0});
    if (side == Side::kIn) set.push_back({.fd = nudged_.get(), .events = POLLIN, .revents = 0});
    for (size_t p = 0; p < wants.size(); ++p) {
      const short events = static_cast<short>((wants[p].read ? POLLIN : 0) | (wants[p].write ? POLLOUT : 0));
      if (events != 0) set.push_back({.fd = sockets_[p].get(), .events = events, .revents = 0});
    }
    if (::poll(set.data(), set.size(), poll_timeout(until)) <= 0) return;
    if (side == Side::kIn && set[1].revents != 0) {
      uint64_t count = 0;
      if (::read(nudged_.get(), &count, sizeof(count)) < 0) return;
    }
  }

  void nudge() override { add_one(nudged_); }
  void stop() override { add_one(stopped_); }
  bool checks(int /*process*/) const override { return true; }

 private:
  int socket(int process) const { return sockets_[static_cast<size_t>(process)].get(); }

  std::vector<Descriptor> sockets_;
  Descriptor nudged_, stopped_;
};

}  // namespace

Result<std::unique_ptr<Lanes>> make_net_lanes(std::vector<Descriptor> sockets) {
  Descriptor nudged(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), stopped(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!nudged.open() || !stopped.open()) {
    return fail(Code::kResourceExhausted, "no descriptor for a mesh: {}; raise the limit of open files",
                std::strerror(errno));
  }
  return std::make_unique<NetLanes>(std::move(sockets), std::move(nudged), std::move(stopped));
}

}  // namespace baton::parallel
