// A mesh of processes, over sockets or shared memory. Made by a meeting (rendezvous.h).
#pragma once

#include <memory>

#include "parallel/lanes.h"
#include "parallel/mesh_state.h"
#include "parallel/net/descriptor.h"

namespace baton::parallel {

// Something that lives as long as a mesh and is told of its end by asking.
class MeshCompanion {
 public:
  virtual ~MeshCompanion() = default;
  // `failure` may be asked, from any thread, until destruction.
  virtual void attach(std::function<std::optional<Status>()> failure) = 0;
};

struct ProcessMeshParts {
  std::unique_ptr<MeshState> state;
  std::vector<Descriptor> control;  // sockets by process
  std::unique_ptr<Lanes> exchange, messages;
  std::string kind;
  std::unique_ptr<MeshCompanion> companion;  // or none
};

// Starts two threads: one for the control connections, one for messages.
Result<std::unique_ptr<Mesh>> make_process_mesh(ProcessMeshParts parts);

}  // namespace baton::parallel
