// An exchange over lanes: all parts go out and come in at once, each as far as its path has room, so that parts of any
// size pass paths of any width. One thread at a time.
//
// Sketch: of P processes with parts of b bytes, each writes and reads (P - 1) b. Small parts cost one write and two
// reads each and about one wake-up of the slowest path; large ones are one copy in and one out of a ring, or of the
// kernel's buffers.
#pragma once

#include <vector>

#include "parallel/lanes.h"
#include "parallel/mesh_state.h"

namespace baton::parallel {

class LaneExchange {
 public:
  LaneExchange(MeshState& state, Lanes& lanes);

  struct Failure {
    Status status;
    bool path_broken = false;  // the control connection may know better why
    int process = -1;          // whose
  };
  // Parts are checked already. What failed is for the caller to make known.
  std::optional<Failure> run(std::span<const Mesh::Bytes> to_each, std::vector<MessageBytes>& from_each,
                             Duration timeout);

 private:
  struct Incoming {
    LaneHeader header;
    size_t position = 0;  // of header and bytes
    bool done = false;
  };

  std::optional<Failure> start(std::span<const Mesh::Bytes> to_each, std::vector<MessageBytes>& from_each);
  std::optional<Failure> step(int process, MessageBytes& into, bool& moved);
  std::optional<Failure> read(int process, MessageBytes& into, bool& moved);
  std::optional<Failure> take_header(int process, MessageBytes& into);
  Failure late(Duration timeout) const;

  MeshState& state_;
  Lanes& lanes_;
  uint32_t number_ = 0;
  std::vector<LaneWriter> writers_;
  std::vector<Incoming> incoming_;
  std::vector<Lanes::Want> wants_;
};

}  // namespace baton::parallel
