// Time as an argument: code that waits or expires takes a Clock, so that tests and the simulator own time.
#pragma once

#include <chrono>

namespace baton {

using Duration = std::chrono::nanoseconds;
// A point on the monotonic clock; never wall time.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now()); }
};

// The twin: stands still until moved. One thread.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void advance(Duration by) { now_ += by; }

 private:
  TimePoint now_{std::chrono::seconds(1000)};
};

inline double seconds_between(TimePoint from, TimePoint to) { return std::chrono::duration<double>(to - from).count(); }

}  // namespace baton
