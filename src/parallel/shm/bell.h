// A bell in shared memory: whoever waits for a ring sleeps in the kernel. It survives the death of any process: a
// waiter that was killed leaves its count behind, which costs later rings a system call and nothing else.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace baton::parallel {

struct alignas(64) Bell {
  std::atomic<uint32_t> rings;
  std::atomic<uint32_t> waiters;

  void ring() {
    rings.fetch_add(1);
    if (waiters.load() != 0) ::syscall(SYS_futex, &rings, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  }

  // Returns when it has rung since `seen` was read from `rings`, at `until`, or early.
  void wait(uint32_t seen, TimePoint until) {
    timespec at{};
    const bool bounded = until != TimePoint::max();
    if (bounded) {
      const auto since = until.time_since_epoch().count();
      at = {.tv_sec = since / 1'000'000'000, .tv_nsec = since % 1'000'000'000};
    }
    waiters.fetch_add(1);
    ::syscall(SYS_futex, &rings, FUTEX_WAIT_BITSET, seen, bounded ? &at : nullptr, nullptr, FUTEX_BITSET_MATCH_ANY);
    waiters.fetch_sub(1);
  }
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace baton::parallel
