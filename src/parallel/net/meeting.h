// One meeting, from the first knock to all being connected. What rendezvous.h builds a mesh of.
#pragma once

#include <memory>

#include "parallel/net/descriptor.h"
#include "parallel/process_mesh.h"
#include "parallel/rendezvous.h"

namespace baton::parallel {

struct MeetingResult {
  std::vector<Member> members;
  std::vector<Descriptor> control, exchange, messages;  // by process; the own place is empty
  std::unique_ptr<MeshCompanion> desk;                  // of rank 0
};

// options are checked, and size is over 1.
Result<MeetingResult> hold_meeting(const RendezvousOptions& options);

}  // namespace baton::parallel
