// Messages over lanes: senders write from their own threads; a reader thread brings what comes to the inbox of the
// state, so that two that send to each other never wait for each other.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "parallel/lanes.h"
#include "parallel/mesh_state.h"

namespace baton::parallel {

class LaneMessages {
 public:
  // `broken` is told, by the reader thread, of a path that ended or of bytes that are no message. It starts the reader.
  using Broken = std::function<void(int process, const Status& status, bool path_broken)>;
  LaneMessages(MeshState& state, Lanes& lanes, Broken broken);
  // The lanes must have been stopped and the state failed.
  ~LaneMessages();

  struct Failure {
    Status status;
    bool path_broken = false;
  };
  std::optional<Failure> send(int process, uint32_t tag, Mesh::Bytes message);

 private:
  struct Incoming {
    LaneHeader header;
    size_t position = 0;
    MessageBytes bytes;
    bool over = false;
  };

  void read_all();
  bool read_from(int process);  // true when something came
  bool take_header(int process);
  void give_up(int process, const Status& status, bool path_broken);

  MeshState& state_;
  Lanes& lanes_;
  const Broken broken_;
  std::vector<std::unique_ptr<std::mutex>> sending_;
  std::mutex out_;  // one sender waits for room at a time
  std::vector<Incoming> incoming_;
  std::thread reader_;
};

}  // namespace baton::parallel
