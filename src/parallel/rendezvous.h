// How the processes of an engine find each other: rank 0 listens at an address that all are told, the others come.
//
// Each says who it is (rank, size, name of the group, fingerprint of what it serves); what doesn't fit is refused, with
// the reason, at the one that came and in the log of rank 0. When all are there, each learns the addresses of all and
// connects to each; processes of one host then share memory, the others keep sockets. The meeting is over for all or
// for none: where one can't reach another, all are told which.
//
// Rank 0 keeps listening while the group lives, so that one who comes late is told so. When the group is over, its
// members may meet again at the same address.
#pragma once

#include <memory>
#include <string>

#include "parallel/mesh.h"

namespace baton::parallel {

struct RendezvousOptions {
  std::string address;  // host or IP of rank 0, as all are told it
  int port = 0;
  int size = 1;
  int rank = 0;
  // Our own address, for the others to connect to. Empty: rank 0 takes `address`, others the one by which they reach
  // it. Rank 0 listens there too when `address` is not one of this host (a port forwarded to it).
  std::string listen_host;
  std::string group;        // "data-parallel", "pipeline": two groups never mix
  std::string fingerprint;  // model and grid: unequal is refused, naming both
  Duration deadline = std::chrono::seconds(300);
  std::string secret;  // shared by all; empty: none. It keeps strangers out; it doesn't encrypt
  // Members of one host share memory. Which those are: those of equal `host`; empty: of the same running kernel.
  bool allow_shm = true;
  std::string host;
  MeshOptions mesh;
};

// Waits until all have met. One process alone gets a mesh of one, and no port is opened. Errors:
// kInvalidArgument: the options; kAlreadyExists: rank 0's port is taken; kDeadlineExceeded: who is missing;
// kMismatch: group, fingerprint or size are not those of rank 0; kFailedPrecondition: that rank is there already, or
// the group runs; kUnauthenticated: the secret; kUnavailable: a member can't reach another, or has gone meanwhile.
Result<std::unique_ptr<Mesh>> meet(const RendezvousOptions& options);

}  // namespace baton::parallel
