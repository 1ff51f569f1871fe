#include "engine/ranks/rank_thread.h"

#include <immintrin.h>
#include <pthread.h>

#include <chrono>
#include <utility>

namespace baton::engine {

RankThread::RankThread(std::string name, int spin_us) : name_(std::move(name)), spin_us_(spin_us) {
  thread_ = std::thread([this] { run(); });
}

RankThread::~RankThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_.store(true);
  }
  wake_.notify_all();
  thread_.join();
}

void RankThread::post(std::function<void()> work) {
  bool sleeps = false;
  {
    std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    posted_.fetch_add(1);
    sleeps = sleeping_;
  }
  if (sleeps) wake_.notify_one();
}

void RankThread::run() {
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
  for (uint64_t done = 0;; ++done) {
    wait_for_work(done);
    std::function<void()> work;
    {
      std::lock_guard lock(mutex_);
      if (work_.empty()) return;
      work = std::move(work_.front());
      work_.pop_front();
    }
    work();
  }
}

// Returns with work there, or when the end is asked for.
void RankThread::wait_for_work(uint64_t done) {
  const auto over = [&] { return posted_.load() != done || stopping_.load(); };
  if (spin_us_ > 0) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(spin_us_);
    while (!over() && std::chrono::steady_clock::now() < end) _mm_pause();
  }
  if (over()) return;
  std::unique_lock lock(mutex_);
  sleeping_ = true;
  wake_.wait(lock, over);
  sleeping_ = false;
}

}  // namespace baton::engine
