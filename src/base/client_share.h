// Fairness between clients at a door that holds so many requests and no more. Pure.
#pragma once

#include <cstdint>

namespace baton {

// How many requests a client may have inside where there is room for `room` more: eight times as many. Alone it gets
// nearly all places, and however many flood the door, there is a place for one more.
inline constexpr int64_t client_share(int64_t room) { return 8 * room; }

}  // namespace baton
