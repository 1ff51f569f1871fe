// The always-on checks of bytes that travel between processes. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace baton {

// Whether bytes that arrive are compared with what left: true, but in a build made to measure what that costs
// (cmake -DBATON_CHECKS=OFF), which is never one to serve with: its version says so, so that no other engine trusts it.
bool checks_on();
// XXH3-64 where bytes are checked, 0 without checks_on().
uint64_t checked_hash(std::span<const std::byte> bytes, uint64_t seed = 0);

}  // namespace baton
