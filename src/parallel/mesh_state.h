// What every kind of mesh has: who is in it, whether it is over and why, and the messages that wait to be received.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include "parallel/mesh.h"

namespace baton::parallel {

// Any thread, but for what Mesh says of receive.
class MeshState {
 public:
  MeshState(int rank, std::vector<Member> members, MeshOptions options);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<Member>& members() const { return members_; }
  const MeshOptions& options() const { return options_; }
  // "process 3 (10.0.0.3:41234)"
  std::string name_of(int process) const;
  Result<void> check_process(int process) const;

  // Ends it. True for the first, whose status counts: receivers wake, the handler is called. The waker is called too.
  bool fail(const Status& status);
  // The status of a lost member: "process 3 (10.0.0.3:41234) is lost: <reason>".
  Status lost(int process, std::string_view reason) const;
  Status left(int process, std::string_view reason) const;
  std::optional<Status> failure() const;
  Result<void> check_alive() const;
  // Waits for the end of the group; what it is, or nothing after `timeout`.
  std::optional<Status> wait_failure(Duration timeout) const;
  void on_failure(std::function<void(const Status&)> handler);
  // Called by fail(), before the handler, to wake whoever waits outside the inbox. Set once, before use.
  void set_waker(std::function<void()> waker) { waker_ = std::move(waker); }

  // The inbox. deliver() is for the one that reads from that peer.
  void deliver(int process, uint32_t tag, MessageBytes message);
  bool has_room(int process) const;  // for another message of that peer
  // Called, without a lock, whenever a peer gets room again after has_room was false. Set once, before use.
  void set_room_waker(std::function<void()> waker) { room_waker_ = std::move(waker); }
  // kDeadlineExceeded after `timeout`; does not end the group by itself.
  Result<MessageBytes> take(int process, uint32_t tag, Duration timeout);

 private:
  struct Inbox {
    std::map<uint32_t, std::deque<MessageBytes>> by_tag;
    uint64_t bytes = 0;
    bool full_seen = false;
  };

  const int rank_;
  const std::vector<Member> members_;
  const MeshOptions options_;
  std::function<void()> waker_, room_waker_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::optional<Status> failure_;
  std::function<void(const Status&)> handler_;
  mutable std::vector<Inbox> inboxes_;
};

// What every exchange and send checks first.
Result<void> check_parts(const MeshState& state, std::span<const Mesh::Bytes> to_each);
Result<void> check_message(const MeshState& state, uint64_t bytes);
// "it has not sent its part of an exchange within 300 s"
std::string overdue(Duration timeout, std::string_view what);
// The point `timeout` from now, without overflow.
TimePoint mesh_deadline(Duration timeout);

}  // namespace baton::parallel
