// What copies on this machine can do at most: the yardsticks that reports put beside a hand-off. Callers time them.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"

namespace baton::transport {

// Copies whole cache lines past the caches (16 B stores); both sides 16 B aligned, the last bytes % 64 are left out.
void stream_copy(const std::byte* from, std::byte* to, size_t bytes);

// Seconds in which another thread's bytes arrive here over one loopback TCP connection, in writes of 1 MB.
// kUnavailable without a loopback.
Result<double> loopback_tcp_seconds(std::span<const std::byte> bytes);

}  // namespace baton::transport
