// What binds an offer of KV to its prompt: a fetched cache is used only for the very token ids it was computed from.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace baton::wire {

// The first 16 bytes of SHA-256 over the token ids (int32, little-endian).
using PromptDigest = std::array<uint64_t, 2>;
PromptDigest prompt_digest(std::span<const int32_t> tokens);

}  // namespace baton::wire
