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
  std::atomic<uint32_t> enough;  // rings at which the waiter wants to be woken

  // True when somebody sleeps who is to be woken. `now`: even one who waits for more rings.
  bool add(bool now) {
    const uint32_t count = rings.fetch_add(1) + 1;
    return waiters.load() != 0 && (now || static_cast<int32_t>(count - enough.load()) >= 0);
  }
  void wake() { ::syscall(SYS_futex, &rings, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0); }
  void ring(bool now) {
    if (add(now)) wake();
  }

  // Returns when it has rung `count` times since `seen` was read from `rings`, at `until`, or early; at once when it
  // has rung at all before this call. One thread waits at a time where count is over 1.
  void wait(uint32_t seen, uint32_t count, TimePoint until) {
    timespec at{};
    const bool bounded = until != TimePoint::max();
    if (bounded) {
      const auto since = until.time_since_epoch().count();
      at = {.tv_sec = since / 1'000'000'000, .tv_nsec = since % 1'000'000'000};
    }
    begin_wait(seen + count);
    ::syscall(SYS_futex, &rings, FUTEX_WAIT_BITSET, seen, bounded ? &at : nullptr, nullptr, FUTEX_BITSET_MATCH_ANY);
    end_wait();
  }

  // For one who sleeps elsewhere until add() has told the ringer to wake it.
  void begin_wait(uint32_t until_rings) {
    enough.store(until_rings);
    waiters.fetch_add(1);
  }
  void end_wait() { waiters.fetch_sub(1); }
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace baton::parallel
