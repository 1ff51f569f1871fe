// A listening port of a meeting, at which strangers may knock: each connection is served by a coroutine of its own, and
// the number of those that have not said who they are is bounded; past it the oldest is put out.
//
// One executor.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "net/stream.h"

namespace baton::parallel {

class Door : public std::enable_shared_from_this<Door> {
 public:
  using Guest = std::shared_ptr<net::Stream>;  // the door and the coroutine that serves it
  using Serve = std::function<net::Task<void>(Guest)>;
  static constexpr size_t kUnknownMax = 128;

  // What `serve` refers to must outlive the run of the executor after close().
  static Result<std::shared_ptr<Door>> open(net::asio::any_io_executor executor, const std::string& host, int port,
                                            Serve serve);
  int port() const { return listener_->port(); }
  void start();
  void known(const Guest& guest);
  // No more come in, and all that are in are closed.
  void close();

 private:
  Door(net::asio::any_io_executor executor, std::unique_ptr<net::Listener> listener, Serve serve)
      : executor_(std::move(executor)), listener_(std::move(listener)), serve_(std::move(serve)) {}
  static net::Task<void> accept_all(std::shared_ptr<Door> self);
  static net::Task<void> serve_one(std::shared_ptr<Door> self, Guest guest);

  net::asio::any_io_executor executor_;
  std::unique_ptr<net::Listener> listener_;
  Serve serve_;
  bool closed_ = false;
  std::deque<Guest> unknown_;
  std::deque<std::weak_ptr<net::Stream>> inside_;
};

}  // namespace baton::parallel
