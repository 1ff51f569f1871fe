// Lanes that are sockets, one for each of the other processes.
#pragma once

#include <memory>
#include <vector>

#include "parallel/lanes.h"
#include "parallel/net/descriptor.h"

namespace baton::parallel {

// Takes connected, authenticated sockets by process; the own place is empty.
Result<std::unique_ptr<Lanes>> make_net_lanes(std::vector<Descriptor> sockets);

}  // namespace baton::parallel
