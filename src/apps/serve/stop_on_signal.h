// Signals to stop, for a process that works for a leading one and has no event loop of its own.
//
// The leading process is asked to stop at about the same time, where a whole deployment stops: it then ends its members
// in order. So a signal gives it `patience`; past that, or at a second signal, this process leaves the group, and the
// others say so.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <thread>

#include "base/clock.h"
#include "parallel/mesh.h"

namespace baton::apps {

// SIGINT, SIGTERM, and SIGHUP where it is not ignored: nohup's processes outlive their terminal.
void add_stop_signals(boost::asio::signal_set& signals);

// From now on those end the process at once, as it was about to, with status 0. `signals` lets go of them.
void exit_at_next_signal(boost::asio::signal_set& signals);

// A thread of its own from construction to destruction. The mesh outlives it.
class StopOnSignal {
 public:
  StopOnSignal(parallel::Mesh& mesh, Duration patience);
  ~StopOnSignal();
  // A signal has come. Any thread.
  bool asked() const { return asked_.load(); }

 private:
  void on_signal(int signal);
  void leave();

  parallel::Mesh& mesh_;
  const Duration patience_;
  std::atomic<bool> asked_{false};
  boost::asio::io_context context_{1};
  boost::asio::signal_set signals_;
  boost::asio::steady_timer timer_;
  std::thread thread_;
};

}  // namespace baton::apps
