// The connection between each two processes that says whether they live and why they go: heartbeats, "I leave", "the
// group is over". Nothing else passes it, so nothing can hold it up.
//
// A process that ends closes it: noticed at once. A host that falls silent doesn't acknowledge heartbeats: the system
// ends the connection after MeshOptions::silence. A stopped process's system still acknowledges them.
//
// Threads: one of its own, which waits on all connections. tell_*: any thread.
#pragma once

#include <mutex>
#include <thread>
#include <vector>

#include "parallel/mesh_state.h"
#include "parallel/net/descriptor.h"

namespace baton::parallel {

class Control {
 public:
  // Sockets by process, connected and authenticated; the own place is empty.
  static Result<std::unique_ptr<Control>> start(MeshState& state, std::vector<Descriptor> sockets);
  ~Control();

  // To all others; what can't be sent without waiting is not sent.
  void tell_over(const Status& status);
  void tell_leaving(const std::string& reason);

 private:
  enum class Kind : uint8_t { kHeartbeat = 1, kLeaving = 2, kOver = 3 };
  struct Peer {
    Descriptor socket;
    std::vector<std::byte> unread;
    bool closed = false;
  };

  Control(MeshState& state, std::vector<Descriptor> sockets, Descriptor stopped);
  void run();
  void wait(TimePoint until);
  void read(int process);
  // Takes whole frames from what was read; false when it isn't ours.
  bool take_frames(int process);
  void take_frame(int process, Kind kind, std::string_view text);
  void lose(const Status& status);
  void tell(Kind kind, std::string_view text);

  MeshState& state_;
  std::vector<Peer> peers_;
  Descriptor stopped_;
  std::mutex writing_;
  std::thread thread_;
};

}  // namespace baton::parallel
