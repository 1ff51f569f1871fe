// The ranks of one process that compute a step together: a barrier, and memory that all of them write and read.
//
// A gather costs one barrier and no copy: each rank writes its columns of shared memory, all wait, all read. There is
// no reduction: nothing is ever summed over ranks (docs/exactness.md).
//
//   auto rows = group.share(max_rows * features * 4);        // once, by every rank
//   ... each rank writes its columns of rows->as<float>() ...
//   group.barrier();                                          // now all columns are there
//
// Between reading shared memory and writing it again, a rank must pass another barrier of the group: another gather
// into other memory does.
//
// Threads: one Group per rank, used by that rank's thread alone. All ranks must call the same operations in one order.
// Waiting ranks spin for spin_us, then block; 0 when ranks exceed cores.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "tensor/buffer.h"

namespace baton::parallel {

// A rank has gone: thrown by every operation of its group from then on, and the one thing that Baton throws. It unwinds
// a forward pass, whose kernels could not go on with what isn't there; the rank's thread catches it.
class GroupBroken : public std::exception {
 public:
  explicit GroupBroken(std::string reason) : reason_(std::move(reason)) {}
  const char* what() const noexcept override { return reason_.c_str(); }

 private:
  std::string reason_;
};

// What the ranks of a group have in common. Outlives them.
class Team {
 public:
  explicit Team(int size, int spin_us = 0) : size_(size), spin_us_(spin_us) {}
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  int size() const { return size_; }
  // Any thread, any time: every rank that waits, or will, throws GroupBroken. The first reason counts.
  void break_up(const std::string& reason);
  bool broken() const { return broken_.load(); }
  std::string reason() const;

 private:
  friend class Group;
  void wait(uint64_t round);
  void arrive(const std::function<void()>* last);
  [[noreturn]] void throw_broken() const;

  const int size_;
  const int spin_us_;
  std::atomic<uint64_t> round_{0};
  std::atomic<int> arrived_{0};
  std::atomic<int> sleeping_{0};
  std::atomic<bool> broken_{false};
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::string reason_;
  std::shared_ptr<tensor::Buffer> fresh_;  // of the share() under way
};

// One rank's end. A default one is a group of one: nothing waits.
class Group {
 public:
  Group() = default;
  Group(Team& team, int rank) : team_(&team), rank_(rank) {}
  int rank() const { return rank_; }
  int size() const { return team_ == nullptr ? 1 : team_->size(); }

  // Returns when every rank has come here; what each wrote before, all read after.
  void barrier();
  // The same; the last to come runs `last` before any goes on. It must not throw.
  void barrier(const std::function<void()>& last);
  // Zeroed memory for all ranks, 64-byte aligned; the same call, with the same size, on each. kResourceExhausted on
  // all.
  Result<std::shared_ptr<tensor::Buffer>> share(size_t bytes);

 private:
  Team* team_ = nullptr;
  int rank_ = 0;
};

}  // namespace baton::parallel
