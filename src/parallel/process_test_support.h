// For tests of parallel/: members that are threads, and members that are processes and can be killed.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "parallel/rendezvous.h"

namespace baton::parallel {

inline int free_port() {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(::bind(descriptor, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ::close(descriptor);
  return ntohs(address.sin_port);
}

// A connection of a stranger; -1 when it can't be made.
inline int connect_raw(int port) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (::connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return descriptor;
  ::close(descriptor);
  return -1;
}

// A member in a process of its own. What it says arrives line by line.
class MemberProcess {
 public:
  using Say = std::function<void(const std::string&)>;
  explicit MemberProcess(const std::function<void(const Say&)>& body) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(3);
      ::alarm(60);
      body([&](const std::string& line) {
        const std::string whole = line + "\n";
        if (::write(ends[1], whole.data(), whole.size()) < 0) ::_exit(4);
      });
      ::_exit(0);
    }
    ::close(ends[1]);
    said_ = ends[0];
  }
  ~MemberProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(said_);
  }
  MemberProcess(const MemberProcess&) = delete;
  MemberProcess& operator=(const MemberProcess&) = delete;

  void signal(int number) const { ::kill(pid_, number); }
  // The next line, or "(nothing)" after `timeout`.
  std::string hear(Duration timeout = std::chrono::seconds(10)) {
    const TimePoint until = SteadyClock().now() + timeout;
    while (unread_.find('\n') == std::string::npos) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - SteadyClock().now()).count();
      pollfd set{.fd = said_, .events = POLLIN, .revents = 0};
      if (left <= 0 || ::poll(&set, 1, static_cast<int>(left)) <= 0) return "(nothing)";
      char bytes[512];
      const auto count = ::read(said_, bytes, sizeof(bytes));
      if (count <= 0) return "(ended)";
      unread_.append(bytes, static_cast<size_t>(count));
    }
    const size_t end = unread_.find('\n');
    std::string line = unread_.substr(0, end);
    unread_.erase(0, end + 1);
    return line;
  }

 private:
  pid_t pid_ = -1;
  int said_ = -1;
  std::string unread_;
};

inline RendezvousOptions loopback_group(int port, int size, int rank) {
  return {.address = "127.0.0.1",
          .port = port,
          .size = size,
          .rank = rank,
          .listen_host = {},
          .group = "test",
          .fingerprint = "model a, tp2",
          .deadline = std::chrono::seconds(20),
          .secret = {},
          .allow_shm = true,
          .host = {},
          .mesh = {}};
}

using MeetResult = Result<std::unique_ptr<Mesh>>;

// Each options' member on a thread of its own.
inline std::vector<MeetResult> meet_all(const std::vector<RendezvousOptions>& members) {
  std::vector<MeetResult> results(members.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < members.size(); ++i) threads.emplace_back([&, i] { results[i] = meet(members[i]); });
  for (auto& thread : threads) thread.join();
  return results;
}

}  // namespace baton::parallel
