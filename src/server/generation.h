// The bridge from an HTTP handler to the engine: submits choices, and hands their outputs over from the engine's thread
// to the handler's executor. Aborts whatever still runs when it goes out of scope.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "net/stream.h"

namespace baton::server {

class Generation {
 public:
  Generation(engine::Engine& engine, net::asio::any_io_executor executor);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  struct Output {
    size_t choice = 0;
    engine::RequestOutput output;
  };
  // Its outputs carry `choice`. The error is the engine's refusal.
  Result<void> submit(size_t choice, engine::EngineRequest request);
  // The next output of any choice; kCancelled once cancel() was called.
  net::Task<Result<Output>> next();
  // One choice has all it wanted (a stop string matched).
  void finish(size_t choice);
  // The client has gone: aborts everything and wakes next(). On the handler's executor.
  void cancel();

 private:
  // Outlives the Generation: the engine's callbacks hold it.
  struct Channel {
    explicit Channel(net::asio::any_io_executor on) : executor(on), wake(on) {}
    net::asio::any_io_executor executor;
    net::asio::steady_timer wake;
    std::deque<Output> outputs;
    bool cancelled = false;
  };

  engine::Engine& engine_;
  std::shared_ptr<Channel> channel_;
  std::vector<std::string> running_;  // engine ids by choice; empty once finished
};

}  // namespace baton::server
