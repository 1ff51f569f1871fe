#include "kv/block_hash.h"

#include <vector>

#include "base/byte_codec.h"

namespace baton::kv {

BlockHash root_hash(std::string_view hash_seed) {
  ByteWriter writer;
  writer.put_string("baton.kv.root.1");
  writer.put_string(std::string(hash_seed));
  return sha256(writer.view());
}

BlockHash hash_block(const BlockHash& parent, std::span<const TokenId> tokens,
                     std::span<const std::string> extra_keys) {
  ByteWriter writer;
  writer.put_bytes(parent);
  writer.put_array<TokenId>(tokens);
  writer.put<uint32_t>(static_cast<uint32_t>(extra_keys.size()));
  for (const auto& key : extra_keys) writer.put_string(key);
  return sha256(writer.view());
}

}  // namespace baton::kv
