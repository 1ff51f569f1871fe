// Who an engine is and how its KV lies in memory: what two engines must agree on before a byte of KV moves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/byte_codec.h"
#include "base/status.h"

namespace baton::wire {

inline constexpr uint16_t kHandoffVersion = 2;

// What one layer keeps, per token in a block, or per sequence in a slot of recurrent state: [part][unit][token].
struct LayoutEntry {
  std::string kind;         // keys_values, latent, index_keys, state
  std::string dtype;        // "bf16"
  int32_t units = 1;        // KV heads, heads of a state; else 1
  int32_t parts = 1;        // 2: keys, then values
  int64_t token_bytes = 0;  // of one token (of a state: in all), in one part of one unit
  bool operator==(const LayoutEntry&) const = default;
};

// The cache geometry in plain words; the same on both sides except for the number of blocks and slots.
struct LayoutDesc {
  int32_t block_size = 0;            // tokens
  std::vector<LayoutEntry> entries;  // of a block, in this order
  std::vector<LayoutEntry> states;   // of a slot; empty: the model keeps no recurrent state
  bool operator==(const LayoutDesc&) const = default;
};

// What decides the bits that a kernel yields.
struct NumericProfile {
  std::string isa;
  uint32_t kernel_revision = 0;
  std::string onednn_version;  // empty: not used
  bool operator==(const NumericProfile&) const = default;
};

struct EngineIdentity {
  uint16_t protocol_version = kHandoffVersion;
  std::string software_version;  // reported, not compared: the numeric profile is what must agree
  std::string engine_id;
  uint64_t instance_nonce = 0;    // drawn at start: a restart under the same engine_id is another instance
  std::string model_fingerprint;  // of config and weights
  std::string tokenizer_hash;     // empty: not compared
  LayoutDesc layout;
  std::vector<std::string> layer_names;
  NumericProfile profile;
};

struct CompareOptions {
  bool allow_other_profile = false;  // then results may differ in their last bits
};

// kMismatch names the first difference with both values: "block size: ours 16, theirs 768".
Result<void> compare_identity(const EngineIdentity& ours, const EngineIdentity& theirs, CompareOptions options = {});

void encode_identity(const EngineIdentity& identity, ByteWriter& writer);
// kOutOfRange for strings or lists beyond the bounds in the .cc file. Check reader.ok() afterwards.
Result<EngineIdentity> decode_identity(ByteReader& reader);

}  // namespace baton::wire
