// The identity of a model in hand-shakes: two processes with the same fingerprint compute the same numbers.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "weights/checkpoint.h"

namespace baton::models {

// Hex SHA-256 over `configuration` (the family's own canonical text), the rotary table as computed on this machine, and
// each tensor's name, shape, format and sampled bytes (64 pieces of 64 bytes, evenly spread, first and last included).
// Call before tensors are released: it touches their pages.
std::string model_fingerprint(const weights::Checkpoint& checkpoint, std::string_view configuration,
                              std::span<const float> rope_table);

}  // namespace baton::models
