// For tests: an io_context on a thread of its own, and a blocking client of raw bytes.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "net/http_server.h"
#include "net/stream.h"

namespace baton::net {

class ContextThread {
 public:
  explicit ContextThread(int threads = 1) : guard_(asio::make_work_guard(context_)) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { context_.run(); });
  }
  ~ContextThread() {
    guard_.reset();
    context_.stop();
    for (auto& thread : threads_) thread.join();
  }
  asio::any_io_executor executor() { return context_.get_executor(); }
  // Runs a coroutine there and waits for its result, at most 10 s.
  template <typename T>
  T run(Task<T> task) {
    auto future = asio::co_spawn(context_, std::move(task), asio::use_future);
    if (future.wait_for(std::chrono::seconds(10)) != std::future_status::ready) {
      ADD_FAILURE() << "a coroutine did not end within 10 s";
      std::abort();
    }
    return future.get();
  }

 private:
  asio::io_context context_;
  asio::executor_work_guard<asio::io_context::executor_type> guard_;
  std::vector<std::thread> threads_;
};

// A blocking TCP client that writes and reads bytes as they are.
class RawClient {
 public:
  explicit RawClient(int port) : descriptor_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // What has come when `until` is in it, the peer closes, or `timeout_ms` is over.
  std::string receive(std::string_view until = "", int timeout_ms = 5000) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    std::string got;
    char buffer[65536];
    for (;;) {
      if (!until.empty() && got.find(until) != std::string::npos) return got;
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      pollfd set{.fd = descriptor_, .events = POLLIN, .revents = 0};
      if (left.count() <= 0 || ::poll(&set, 1, static_cast<int>(left.count())) <= 0) return got + "<TIMEOUT>";
      const ssize_t count = ::recv(descriptor_, buffer, sizeof(buffer), 0);
      if (count <= 0) return got;
      got.append(buffer, static_cast<size_t>(count));
    }
  }
  void shutdown_write() { ::shutdown(descriptor_, SHUT_WR); }
  void close() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }
  // Closes with a reset.
  void reset() {
    const linger option{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &option, sizeof(option));
    close();
  }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

inline void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Waits until `condition`; false after `timeout_ms`.
template <typename Condition>
bool wait_until(Condition condition, int timeout_ms = 5000) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    sleep_ms(1);
  }
  return true;
}

}  // namespace baton::net
