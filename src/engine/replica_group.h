// The replicas of an expert-parallel group step together: each layer of experts is an exchange among all of them, so a
// replica without work computes steps of no rows while another has some. Engine thread.
#pragma once

#include <string>

#include "base/status.h"

namespace baton::engine {

class ReplicaGroup {
 public:
  virtual ~ReplicaGroup() = default;
  // Before each step: tells the others whether there are rows here. True: every replica computes a step now. False: no
  // replica has rows, and the group rests; the engine is woken when that changes. kUnavailable names who has gone.
  virtual Result<bool> step_together(bool rows_here) = 0;
  // No replica had rows when it was last asked.
  virtual bool resting() const = 0;
  // Tells the others why this one goes.
  virtual void leave(const std::string& reason) = 0;
};

}  // namespace baton::engine
