// Processes of one engine that know each other: an ordered exchange among all, and messages from one to one.
//
// Two paths, each in order and neither in the other's way: `exchange` (expert parallelism, "who has work") and
// messages (plans from the leader, activations between stages, results back; broadcast is made of them). Bytes arrive
// as they were sent; nothing is summed on the way.
//
// Failure: a group is whole or it is over. Once a member is lost (its process ended, its host fell silent, it let a
// deadline pass) or has left, every operation on every member fails with kUnavailable, and the message names that
// member, its address and the reason; messages not yet received are gone. The members may then meet again
// (rendezvous.h). A stopped process keeps its connections: it counts as lost only when a wait for it has lasted the
// deadline.
//
// Threads: `exchange` by one thread at a time. `send`, `broadcast` as root, `leave` and the questions: any thread.
// `receive`: any thread, one at a time for a (process, tag). Waits block and never spin, unless asked to.
// A Mesh must outlive the calls into it: leave() makes them return.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "parallel/message_bytes.h"

namespace baton::parallel {

// Of a group that has formed.
struct Member {
  int rank = 0;
  std::string address;  // "10.0.0.3:41234", "memory"
};

struct MeshOptions {
  // Longest wait of an operation that is given no timeout of its own. A member that is waited for longer is lost.
  Duration deadline = std::chrono::seconds(300);
  // Members tell each other this often that they live. A host that answers nothing for `silence` is lost.
  Duration heartbeat = std::chrono::seconds(1);
  Duration silence = std::chrono::seconds(4);
  // One part of an exchange, or one message. More is refused by the sender and not believed by the receiver.
  uint64_t message_bytes_max = uint64_t{4} << 30;
  // Messages of one peer that wait to be received. Past it (one message always fits) that peer's sends wait.
  uint64_t inbox_bytes_max = uint64_t{1} << 30;
  // Shared memory of a process for what others send to it on one of the two paths, all peers together; a peer's ring
  // is 64 KiB to 1 MiB.
  uint64_t ring_bytes = uint64_t{8} << 20;
  // How long a wait in shared memory spins before it blocks. Only where every rank of the host has a core of its own.
  Duration spin = Duration::zero();
};

// The deadline of options that VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS asks for, 300 s where it is unset ("").
// kInvalidArgument unless it is a whole number from 1 to 10^6.
Result<Duration> execute_timeout(const std::string& value);

// A wait that only the loss of a member ends.
inline constexpr Duration kNoTimeout = Duration::max();

class Mesh {
 public:
  using Bytes = std::span<const std::byte>;

  virtual ~Mesh() = default;
  virtual int rank() const = 0;
  int size() const { return static_cast<int>(members().size()); }
  virtual const std::vector<Member>& members() const = 0;  // by rank, oneself included
  virtual const MeshOptions& options() const = 0;
  // "memory", "shared memory", "tcp", "shared memory and tcp": for logs.
  virtual std::string_view kind() const = 0;

  // All-to-all: to_each[p] goes to process p; from_each[p] becomes what p gave for us, our own part included. Sizes
  // may differ, and may be 0. Every member must come, in the same order of exchanges. from_each keeps its memory from
  // call to call; parts of to_each must not lie in it. kOutOfRange: a part is over message_bytes_max, nothing was sent.
  virtual Result<void> exchange(std::span<const Bytes> to_each, std::vector<MessageBytes>& from_each) = 0;

  // Hands a message over; returns when it is on its way (its bytes are no longer needed), which may be before it is
  // received. Messages of one thread to one process arrive in order. Tags from kReservedTag on are the mesh's own.
  virtual Result<void> send(int process, uint32_t tag, Bytes message) = 0;
  // The next message of `process` with that tag. Without a timeout the options' deadline counts, and its end breaks
  // the group. With one, its end is kDeadlineExceeded and nothing has changed. kNoTimeout waits as long as all live.
  virtual Result<MessageBytes> receive(int process, uint32_t tag, std::optional<Duration> timeout = {}) = 0;

  // `message` of `root` at every member; others give none. All come, in the same order of broadcasts from one root.
  // One thread at a time.
  Result<MessageBytes> broadcast(int root, Bytes message, std::optional<Duration> timeout = {});

  // Ends the group for all: operations here fail with kCancelled, those of others with kUnavailable and this reason.
  // The first reason counts. Destruction leaves too. Returns when the others have been told, or can't be.
  virtual void leave(const std::string& reason) = 0;

  // Why the group is over, if it is. Idle members see a loss here without any operation.
  virtual std::optional<Status> failure() const = 0;
  // Called once, from an inner thread, when the group is over for any reason but our own leave(); at once if it is
  // already. It must not wait for operations of this mesh, nor destroy it.
  virtual void on_failure(std::function<void(const Status&)> handler) = 0;

  static constexpr uint32_t kReservedTag = 0xffff0000;
};

}  // namespace baton::parallel
