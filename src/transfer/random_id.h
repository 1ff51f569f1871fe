// Numbers that name offers, grants and pushes.
#pragma once

#include <cstdint>

namespace baton::transfer {

// From the system's generator; never 0.
uint64_t random_id();

}  // namespace baton::transfer
