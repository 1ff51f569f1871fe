#include "parallel/group.h"

#include <immintrin.h>

#include <chrono>

namespace baton::parallel {

void Team::break_up(const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    if (broken_.load()) return;
    reason_ = reason;
    broken_.store(true);
  }
  wake_.notify_all();
}

std::string Team::reason() const {
  std::lock_guard lock(mutex_);
  return reason_;
}

void Team::throw_broken() const { throw GroupBroken(reason()); }

void Team::arrive(const std::function<void()>* last) {
  if (broken_.load()) throw_broken();
  const uint64_t round = round_.load();
  if (arrived_.fetch_add(1) + 1 < size_) return wait(round);
  if (last != nullptr) (*last)();
  arrived_.store(0);
  round_.store(round + 1);
  if (sleeping_.load() == 0) return;
  {
    std::lock_guard lock(mutex_);
  }
  wake_.notify_all();
}

void Team::wait(uint64_t round) {
  const auto over = [&] { return round_.load() != round || broken_.load(); };
  if (spin_us_ > 0) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(spin_us_);
    while (!over() && std::chrono::steady_clock::now() < end) _mm_pause();
  }
  if (!over()) {
    std::unique_lock lock(mutex_);
    sleeping_.fetch_add(1);
    wake_.wait(lock, over);
    sleeping_.fetch_sub(1);
  }
  if (round_.load() == round) throw_broken();
}

void Group::barrier() {
  if (team_ != nullptr) team_->arrive(nullptr);
}

void Group::barrier(const std::function<void()>& last) {
  if (team_ == nullptr) return last();
  team_->arrive(&last);
}

Result<std::shared_ptr<tensor::Buffer>> Group::share(size_t bytes) {
  std::shared_ptr<tensor::Buffer> mine;
  std::shared_ptr<tensor::Buffer>& fresh = team_ == nullptr ? mine : team_->fresh_;
  barrier([&] {
    fresh.reset();
    if (auto made = tensor::Buffer::allocate(bytes)) fresh = std::make_shared<tensor::Buffer>(std::move(*made));
  });
  auto shared = fresh;
  barrier();  // before another share() replaces it
  if (shared == nullptr) return fail(Code::kResourceExhausted, "no memory for {} bytes that ranks share", bytes);
  return shared;
}

}  // namespace baton::parallel
