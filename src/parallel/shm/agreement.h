// Which pairs of a mesh's processes share memory: those of one host who can map each other's segment. All members come
// to the same result, each by two exchanges of a few bytes over the sockets they have.
#pragma once

#include "parallel/lane_exchange.h"
#include "parallel/shm/shm_lanes.h"

namespace baton::parallel {

struct SharedMemory {
  enum class Use : uint8_t { kNone, kSome, kAll };
  Use group = Use::kNone;  // over all pairs of the group
  bool ours = false;       // whether we are in one
  Segments segments;       // mapped with those we share with; null when ours is false
};

// host: members of equal ones are on one host; empty: the kernel's boot id. allowed: whether we want any.
Result<SharedMemory> agree_on_shared_memory(MeshState& state, LaneExchange& exchange, const std::string& host,
                                            bool allowed);

}  // namespace baton::parallel
