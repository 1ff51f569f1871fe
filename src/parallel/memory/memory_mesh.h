// The twin of a mesh: several in one process, for tests. Messages are copied; no thread is started.
#pragma once

#include <memory>
#include <vector>

#include "parallel/mesh.h"

namespace baton::parallel {

class MemoryMesh : public Mesh {
 public:
  // As if its process had been killed: the others lose it for `reason`, and nothing here works any more.
  virtual void die(const std::string& reason) = 0;
};

// `size` meshes that know each other; each may be used and destroyed by a thread of its own.
std::vector<std::unique_ptr<MemoryMesh>> make_memory_meshes(int size, const MeshOptions& options = {});

}  // namespace baton::parallel
