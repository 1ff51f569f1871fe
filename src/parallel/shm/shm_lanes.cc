#include "parallel/shm/shm_lanes.h"

#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "parallel/net/net_lanes.h"

namespace baton::parallel {
namespace {

constexpr uint64_t kTurnBytes = 256 * 1024;

class ShmLanes final : public Lanes {
 public:
  ShmLanes(Segments segments, int rank, Path path, Duration spin)
      : segments_(std::move(segments)),
        rank_(rank),
        path_(path),
        spin_(spin),
        written_(segments_->size(), 0),
        read_(segments_->size(), 0) {}

  Result<size_t> write_some(int process, std::span<const std::byte> bytes) override {
    Segment& theirs = segment(process);
    RingHeader& ring = theirs.ring(path_, rank_);
    uint64_t& written = written_[static_cast<size_t>(process)];
    const uint64_t capacity = theirs.place().ring_bytes;
    uint64_t used = written - ring.read.load(std::memory_order_acquire);
    if (used == capacity) {
      // Said before it is looked at again: the reader frees, then asks whether somebody waits.
      ring.writer_waits.store(1);
      used = written - ring.read.load();
    }
    if (used > capacity) return fail(Code::kDataLoss, "its shared memory holds a position that can't be");
    const uint64_t count = std::min({capacity - used, static_cast<uint64_t>(bytes.size()), kTurnBytes});
    if (count == 0) return 0;
    copy_in(theirs.ring_data(path_, rank_), capacity, written, bytes.first(count));
    written += count;
    ring.written.store(written);
    sound(process, false, count < bytes.size());  // full: it must be emptied, whoever else is awaited
    return count;
  }

  Result<size_t> read_some(int process, std::span<std::byte> into) override {
    Segment& ours = segment(rank_);
    RingHeader& ring = ours.ring(path_, process);
    uint64_t& position = read_[static_cast<size_t>(process)];
    const uint64_t capacity = ours.place().ring_bytes;
    const uint64_t there = ring.written.load() - position;
    if (there > capacity) return fail(Code::kDataLoss, "its shared memory holds a position that can't be");
    const uint64_t count = std::min({there, static_cast<uint64_t>(into.size()), kTurnBytes});
    if (count == 0) return 0;
    copy_out(ours.ring_data(path_, process), capacity, position, into.first(count));
    position += count;
    ring.read.store(position);
    if (ring.writer_waits.load() != 0 && ring.writer_waits.exchange(0) != 0) {
      sound(process, path_ == kMessagePath, true);
    }
    return count;
  }

  uint32_t ticket(Side side) override { return bell(side).rings.load(); }

  void wait(Side side, uint32_t seen, std::span<const Want> wants, Until what, TimePoint until) override {
    if (stopped_.load()) return;
    const uint32_t count = what == Until::kAllReads ? rings_wanted(wants) : 1;
    if (spin_ > Duration::zero() && spun(bell(side), seen + count)) return;
    bell(side).wait(seen, count, until);
  }

  void nudge() override { bell(Side::kIn).ring(true); }
  void stop() override {
    stopped_.store(true);
    bell(Side::kIn).ring(true);
    bell(Side::kOut).ring(true);
  }

  // How to wake one that waits for its incoming bell elsewhere than on the bell.
  void set_waker(std::function<void(int process)> waker) { waker_ = std::move(waker); }
  bool is_near(int process) const { return (*segments_)[static_cast<size_t>(process)].mapped(); }
  Bell& bell(Side side) { return segment(rank_).bell(path_, side == Side::kOut); }

 private:
  Segment& segment(int process) { return (*segments_)[static_cast<size_t>(process)]; }
  void sound(int process, bool out, bool now) {
    Bell& theirs = segment(process).bell(path_, out);
    if (!theirs.add(now)) return;
    if (waker_ && !out) return waker_(process);
    theirs.wake();
  }

  // Each of those who are awaited rings at least once: nothing of them was there when the ticket's reads were tried.
  static uint32_t rings_wanted(std::span<const Want> wants) {
    uint32_t reads = 0;
    for (const Want& want : wants) {
      if (want.write) return 1;
      reads += want.read ? 1 : 0;
    }
    return std::max(reads, 1U);
  }

  bool spun(const Bell& bell, uint32_t enough) const {
    const TimePoint until = SteadyClock().now() + spin_;
    while (static_cast<int32_t>(bell.rings.load(std::memory_order_relaxed) - enough) < 0) {
      for (int i = 0; i < 32; ++i) __builtin_ia32_pause();
      if (SteadyClock().now() >= until) return false;
    }
    return true;
  }

  static void copy_in(std::byte* ring, uint64_t capacity, uint64_t position, std::span<const std::byte> bytes) {
    const uint64_t at = position & (capacity - 1), first = std::min<uint64_t>(bytes.size(), capacity - at);
    std::memcpy(ring + at, bytes.data(), first);
    std::memcpy(ring, bytes.data() + first, bytes.size() - first);
  }
  static void copy_out(const std::byte* ring, uint64_t capacity, uint64_t position, std::span<std::byte> into) {
    const uint64_t at = position & (capacity - 1), first = std::min<uint64_t>(into.size(), capacity - at);
    std::memcpy(into.data(), ring + at, first);
    std::memcpy(into.data() + first, ring, into.size() - first);
  }

  const Segments segments_;
  const int rank_;
  const Path path_;
  const Duration spin_;
  std::function<void(int process)> waker_;
  std::atomic<bool> stopped_{false};
  std::vector<uint64_t> written_, read_;  // our own positions, by process
};

class MixedLanes final : public Lanes {
 public:
  MixedLanes(std::unique_ptr<ShmLanes> near, std::unique_ptr<Lanes> far, std::vector<int> sockets)
      : near_(std::move(near)), far_(std::move(far)), sockets_(std::move(sockets)), heard_(sockets_.size()) {
    near_->set_waker([this](int process) {
      const char knock = 1;
      // When not even a byte finds room, enough of them wait there to wake it.
      if (::send(sockets_[static_cast<size_t>(process)], &knock, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
    });
  }

  Result<size_t> write_some(int process, std::span<const std::byte> bytes) override {
    return near_->is_near(process) ? near_->write_some(process, bytes) : far_->write_some(process, bytes);
  }
  Result<size_t> read_some(int process, std::span<std::byte> into) override {
    return near_->is_near(process) ? near_->read_some(process, into) : far_->read_some(process, into);
  }
  uint32_t ticket(Side side) override { return near_->ticket(side); }

  void wait(Side side, uint32_t seen, std::span<const Want> wants, Until what, TimePoint until) override {
    if (side == Side::kIn) return wait_in(seen, wants, what, until);
    // A sender waits for one process.
    for (size_t p = 0; p < wants.size(); ++p) {
      if (!wants[p].write) continue;
      Lanes& lanes = near_->is_near(static_cast<int>(p)) ? static_cast<Lanes&>(*near_) : *far_;
      return lanes.wait(side, seen, wants, what, until);
    }
  }

  void nudge() override {
    near_->nudge();
    far_->nudge();
  }
  void stop() override {
    near_->stop();
    far_->stop();
  }
  bool checks(int process) const override { return !near_->is_near(process); }

 private:
  void wait_in(uint32_t seen, std::span<const Want> wants, Until what, TimePoint until) {
    uint32_t near_reads = 0;
    bool near_write = false;
    for (size_t p = 0; p < wants.size(); ++p) {
      heard_[p] = wants[p];
      if (sockets_[p] < 0 || !near_->is_near(static_cast<int>(p))) continue;
      heard_[p] = {.read = true, .write = false};
      near_reads += wants[p].read ? 1 : 0;
      near_write = near_write || wants[p].write;
    }
    Bell& bell = near_->bell(Side::kIn);
    bell.begin_wait(seen + (what == Until::kAllReads && !near_write ? std::max(near_reads, 1U) : 1));
    if (bell.rings.load() == seen) {
      far_->wait(Side::kIn, 0, heard_, what, until);
      take_knocks();
    }
    bell.end_wait();
  }

  void take_knocks() {
    char knocks[64];
    for (size_t p = 0; p < sockets_.size(); ++p) {
      if (sockets_[p] < 0 || !near_->is_near(static_cast<int>(p))) continue;
      while (::recv(sockets_[p], knocks, sizeof(knocks), MSG_DONTWAIT) == static_cast<ssize_t>(sizeof(knocks))) {
      }
    }
  }

  const std::unique_ptr<ShmLanes> near_;
  const std::unique_ptr<Lanes> far_;
  const std::vector<int> sockets_;  // owned by far_
  std::vector<Want> heard_;
};

}  // namespace

Result<std::unique_ptr<Lanes>> make_mixed_lanes(Segments segments, int rank, Path path,
                                                std::vector<Descriptor> sockets) {
  std::vector<int> numbers;
  for (const auto& socket : sockets) numbers.push_back(socket.get());
  BATON_TRY_ASSIGN(auto far, make_net_lanes(std::move(sockets)));
  auto near = std::make_unique<ShmLanes>(std::move(segments), rank, path, Duration::zero());
  return std::make_unique<MixedLanes>(std::move(near), std::move(far), std::move(numbers));
}

std::unique_ptr<Lanes> make_shm_lanes(Segments segments, int rank, Path path, Duration spin) {
  return std::make_unique<ShmLanes>(std::move(segments), rank, path, spin);
}

uint64_t ring_bytes_for(int processes, uint64_t bytes) {
  const uint64_t each = bytes / static_cast<uint64_t>(std::max(1, processes - 1));
  return std::bit_floor(std::clamp<uint64_t>(each, 64 * 1024, 1 << 20));
}

}  // namespace baton::parallel
