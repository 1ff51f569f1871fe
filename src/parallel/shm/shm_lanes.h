// Lanes that are rings in memory shared by the processes of one host.
//
// Sketch: a byte is copied twice, into the ring and out of it, 256 KiB at a time so that both copies go on together
// where there are two cores; a wake-up is one futex call, and none is made when nobody sleeps.
#pragma once

#include <memory>
#include <vector>

#include "parallel/lanes.h"
#include "parallel/shm/segment.h"

namespace baton::parallel {

// segments: of all processes by rank, our own included; shared_ptr because both paths of a mesh lie in them.
using Segments = std::shared_ptr<std::vector<Segment>>;
std::unique_ptr<Lanes> make_shm_lanes(Segments segments, int rank, Path path, Duration spin);

// For processes of several hosts: memory with those whose segment is mapped, sockets with the others. Who is to be
// woken by one of its own host gets a byte on the socket between the two, so that it sleeps in one place: all members
// of a mesh must be of this kind, or none. sockets: of that path, to all.
Result<std::unique_ptr<Lanes>> make_mixed_lanes(Segments segments, int rank, Path path,
                                                std::vector<Descriptor> sockets);

// Ring size for `processes` of them within `bytes` a path.
uint64_t ring_bytes_for(int processes, uint64_t bytes);

}  // namespace baton::parallel
