// A thread that does what is posted to it, in order: the body of one rank.
//
// It spins for spin_us before it blocks, for a cross-core wake costs 20 us and a step of a small model not much more; 0
// when ranks exceed cores.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace baton::engine {

class RankThread {
 public:
  RankThread(std::string name, int spin_us);
  // Does what was posted before, then ends.
  ~RankThread();
  RankThread(const RankThread&) = delete;
  RankThread& operator=(const RankThread&) = delete;

  // Any thread. `work` must not throw.
  void post(std::function<void()> work);

 private:
  void run();
  void wait_for_work(uint64_t done);

  const std::string name_;
  const int spin_us_;
  std::atomic<uint64_t> posted_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool sleeping_ = false;
  std::deque<std::function<void()>> work_;
  std::thread thread_;
};

}  // namespace baton::engine
