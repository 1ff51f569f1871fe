// The threads of one rank's compute. Owned by the worker; only its owner thread calls run().
//
// run(body) calls body(thread_index) once on every thread, the caller's included (index 0), and returns when all have
// returned. Workers spin briefly between regions (a cross-core wake costs 20 us) and then block, so that idle cores are
// free. The thread count comes from the caller, never from OMP_NUM_THREADS.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace baton {

class ComputePool {
 public:
  struct Options {
    int threads = 1;
    // How long a worker spins for the next region before it blocks, and the caller for the last worker before it yields
    // its core. 0 when threads exceed cores.
    int spin_us = 50;
  };
  explicit ComputePool(Options options);
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  int threads() const { return threads_; }

  // Runs body on every thread and waits. Not re-entrant. body must not throw.
  void run(const std::function<void(int thread_index)>& body);

  // Splits [0, count) into one contiguous range per thread, in units of `grain`, and calls body(begin, end) for the
  // ranges that are not empty. The split depends on count, grain and threads only.
  void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& body);

 private:
  void worker(int thread_index);

  const int threads_;
  const int spin_us_;
  const std::function<void(int)>* body_ = nullptr;
  std::atomic<uint64_t> epoch_{0};
  std::atomic<int> running_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<int> sleeping_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
};

}  // namespace baton
