// Identity of full KV blocks: a SHA-256 chain over (parent, token ids, extra keys). Pure; any thread.
//
// Two blocks with one hash hold the same tokens after the same prefix under the same extra keys (cache salt, later
// adapters and images), so their contents are equal bit for bit and either may stand for the other.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/strong_id.h"

namespace baton::kv {

using BlockHash = Sha256;

// Root of every chain. Processes that share blocks need one hash_seed; the empty seed is a fixed root, too.
BlockHash root_hash(std::string_view hash_seed);

// The encoding is injective: counts come before what they count, so no two inputs meet in one byte string.
BlockHash hash_block(const BlockHash& parent, std::span<const TokenId> tokens, std::span<const std::string> extra_keys);

// A SHA-256 is already uniform: its first word is hash enough.
struct BlockHashHasher {
  size_t operator()(const BlockHash& hash) const noexcept {
    size_t word;
    std::memcpy(&word, hash.data(), sizeof(word));
    return word;
  }
};

}  // namespace baton::kv
