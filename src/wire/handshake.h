// Who an engine is and how its KV lies in memory: what two engines must agree on before a byte of KV moves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/byte_codec.h"
#include "base/status.h"
#include "wire/layout_desc.h"

namespace baton::wire {

inline constexpr uint16_t kHandoffVersion = 5;

// What decides the bits that a kernel yields.
struct NumericProfile {
  std::string isa;
  uint32_t kernel_revision = 0;
  std::string onednn_version;  // empty: not used
  bool operator==(const NumericProfile&) const = default;
};

struct EngineIdentity {
  uint16_t protocol_version = kHandoffVersion;
  std::string software_version;
  std::string engine_id;
  uint64_t instance_nonce = 0;  // drawn at start: a restart under the same engine_id is another instance
  // What the model fingerprint covers, spelled out so that a refusal says what differs.
  std::string model_config;       // architecture and hash of the configuration
  std::string quantisation;       // formats of the weights
  std::string model_fingerprint;  // of config and weights
  std::string tokenizer_hash;     // empty: not compared
  LayoutDesc layout;
  std::vector<std::string> layer_names;  // compared where both engines are whole in one process
  NumericProfile profile;
};

struct CompareOptions {
  bool allow_other_profile = false;  // then results may differ in their last bits
  bool allow_other_version = false;  // for the time of a rolling upgrade; the numeric profile is compared all the same
};

// kMismatch names the first difference with both values: "block size: ours 16, theirs 768".
Result<void> compare_identity(const EngineIdentity& ours, const EngineIdentity& theirs, CompareOptions options = {});

void encode_identity(const EngineIdentity& identity, ByteWriter& writer);
// kOutOfRange for strings or lists beyond the bounds in the .cc file. Check reader.ok() afterwards.
Result<EngineIdentity> decode_identity(ByteReader& reader);

}  // namespace baton::wire
