// One server connection: reads ahead, parses, calls the handler, answers. Inner header of net.
//
// Everything runs on the stream's executor. Two coroutines share the connection: the pump, which always has a read
// outstanding (so that a client that goes away is seen while the handler runs) and keeps what it reads, bounded; and
// serve(), which takes requests out of those bytes one after the other, so that pipelined requests are answered in
// order.
#pragma once

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "net/http_parse.h"
#include "net/http_server.h"

namespace baton::net {

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  struct Shared {
    HttpServerOptions options;
    HttpHandler handler;
    std::atomic<bool> draining{false};
    std::atomic<int> open{0};
    std::atomic<size_t> body_bytes{0};  // of all requests being read or handled
  };
  HttpConnection(std::unique_ptr<Stream> stream, std::shared_ptr<Shared> shared);
  ~HttpConnection();

  // Spawns both coroutines. `on_end` is called once, on the connection's executor.
  void start(std::function<void()> on_end);
  // From any thread.
  void close();
  void close_if_idle();

 private:
  friend class ConnectionResponder;
  // What one request's body takes of the bytes for all; gives it back at its end.
  class BodyShare {
   public:
    explicit BodyShare(Shared& shared) : shared_(shared) {}
    ~BodyShare() { shared_.body_bytes.fetch_sub(bytes_); }
    BodyShare(const BodyShare&) = delete;
    BodyShare& operator=(const BodyShare&) = delete;
    bool grow_to(size_t bytes);  // false: there is no room

   private:
    Shared& shared_;
    size_t bytes_ = 0;
  };
  enum class Wait : uint8_t { kBytes, kTimeout, kEnd };

  Task<void> pump();
  Task<void> wait_for_room();
  Task<void> serve();
  Task<bool> serve_one();  // false: close
  Task<Wait> wait_for_bytes(TimePoint deadline);
  Task<Parsed<RequestHead>> read_head();  // status 0: close without a word
  Task<Parsed<std::string>> read_body(const RequestHead& head, BodyShare& share);
  Task<bool> run_handler(RequestHead head);
  Task<void> refuse(HttpError error);
  Task<void> linger();
  void client_left();
  void shut();

  std::unique_ptr<Stream> stream_;
  std::shared_ptr<Shared> shared_;
  asio::steady_timer input_changed_;
  asio::steady_timer room_changed_;
  std::string input_;  // read, not yet consumed
  bool input_ended_ = false;
  bool idle_ = true;  // between requests
  bool closed_ = false;
  bool handling_ = false;
  bool client_gone_ = false;
  bool told_gone_ = false;
  std::function<void()> on_client_gone_;
};

}  // namespace baton::net
