#include "base/compute_pool.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>

#include "base/check.h"

namespace baton {
namespace {

// True once `ready` holds; false when it has not held for `spin_us`.
template <typename Ready>
bool spin_until(int spin_us, Ready ready) {
  if (ready()) return true;
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(spin_us);
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      _mm_pause();
    }
  }
  return ready();
}

}  // namespace

ComputePool::ComputePool(Options options) : threads_(std::max(1, options.threads)), spin_us_(options.spin_us) {
  workers_.reserve(threads_ - 1);
  for (int i = 1; i < threads_; ++i) workers_.emplace_back([this, i] { worker(i); });
}

ComputePool::~ComputePool() {
  {
    std::lock_guard lock(mutex_);
    stopping_.store(true);
    epoch_.fetch_add(1);
  }
  wake_.notify_all();
  for (auto& thread : workers_) thread.join();
}

void ComputePool::run(const std::function<void(int)>& body) {
  if (threads_ == 1) {
    body(0);
    return;
  }
  BATON_CHECK(running_.load() == 0, "ComputePool::run is not re-entrant");
  body_ = &body;
  running_.store(threads_ - 1);
  epoch_.fetch_add(1);
  if (sleeping_.load() > 0) {
    std::lock_guard lock(mutex_);
    wake_.notify_all();
  }
  body(0);
  const auto done = [&] { return running_.load(std::memory_order_acquire) == 0; };
  if (spin_until(spin_us_, done)) return;
  // A worker may have lost its core to another process, which this thread would keep it from by spinning on.
  while (!done()) std::this_thread::yield();
}

void ComputePool::worker(int thread_index) {
  uint64_t seen = 0;
  for (;;) {
    const auto changed = [&] { return epoch_.load() != seen; };
    if (!spin_until(spin_us_, changed)) {
      std::unique_lock lock(mutex_);
      sleeping_.fetch_add(1);
      wake_.wait(lock, changed);
      sleeping_.fetch_sub(1);
    }
    ++seen;
    if (stopping_.load()) return;
    (*body_)(thread_index);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

void ComputePool::parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  const int64_t units = (count + grain - 1) / grain;
  if (threads_ == 1 || units == 1) {
    body(0, count);
    return;
  }
  run([&](int index) {
    const int64_t begin = units * index / threads_ * grain;
    const int64_t end = std::min(count, units * (index + 1) / threads_ * grain);
    if (begin < end) body(begin, end);
  });
}

}  // namespace baton
