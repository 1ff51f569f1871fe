// A byte path to each of the other processes and one from each, as sockets (net/) or rings in shared memory (shm/).
//
// Nothing here blocks but wait(). Errors mean that the path is broken; why, the control connection says.
//
// Threads: for each process one reader and one writer at a time. A waiter takes a ticket, tries all its reads and
// writes, and, when none went on, waits with that ticket: what happened in between ends the wait at once. One thread
// waits on each side; where one thread both reads and writes (an exchange), it waits on kIn for both.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace baton::parallel {

class Lanes {
 public:
  enum class Side : uint8_t { kIn, kOut };
  struct Want {
    bool read = false;
    bool write = false;
  };

  virtual ~Lanes() = default;
  // Bytes taken now, 0 when there is no room.
  virtual Result<size_t> write_some(int process, std::span<const std::byte> bytes) = 0;
  // Bytes given now, 0 when there are none. kUnavailable at the end.
  virtual Result<size_t> read_some(int process, std::span<std::byte> into) = 0;
  virtual uint32_t ticket(Side side) = 0;
  // Until something wanted (one entry a process) may go on, nudge() or stop() is called, or `until`; may end early. An
  // exchange that has written all waits for all reads it wants: one wake-up where the lanes can do that.
  enum class Until : uint8_t { kAny, kAllReads };
  virtual void wait(Side side, uint32_t ticket, std::span<const Want> wants, Until what, TimePoint until) = 0;
  // Any thread: the waiter on kIn looks again.
  virtual void nudge() = 0;
  // Any thread: every wait ends at once from now on.
  virtual void stop() = 0;
  // Whether messages to and from it carry a check of their bytes: those that cross a network do.
  virtual bool checks(int /*process*/) const { return false; }
};

// Before each small message. Large ones are written after their header without being copied.
struct LaneHeader {
  uint64_t bytes = 0;
  uint32_t number = 0;  // of the exchange, or the tag
  uint32_t mark = 0;
  uint64_t check = 0;  // of the bytes, where the lanes want one
};
static_assert(sizeof(LaneHeader) == 24);

// Of a message to or from `process`; 0 where there is no check.
uint64_t lane_check(const Lanes& lanes, int process, uint32_t number, std::span<const std::byte> bytes);

// A message on its way out of a lane: header and bytes, as far as there is room each time.
class LaneWriter {
 public:
  void start(LaneHeader header, std::span<const std::byte> bytes);
  bool done() const { return position_ == sizeof(LaneHeader) + bytes_.size(); }
  // True when something was written.
  Result<bool> go_on(Lanes& lanes, int process);

 private:
  static constexpr size_t kCopiedMax = 16 * 1024;
  LaneHeader header_;
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
  std::vector<std::byte> whole_;  // header and bytes of a small message
};

}  // namespace baton::parallel
