// How the cache of an engine is spread over its ranks: what a model keeps in all, and which part of it each rank of a
// process holds. Two engines must agree on the first; the second may differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/byte_codec.h"
#include "base/status.h"

namespace baton::wire {

// What one layer keeps, per token in a block, or per sequence in a slot of recurrent state: [part][unit][token].
struct LayoutEntry {
  std::string kind;         // keys_values, latent, index_keys, state
  std::string dtype;        // "bf16"
  int32_t units = 1;        // KV heads, heads of a state; else 1
  int32_t parts = 1;        // 2: keys, then values
  int64_t token_bytes = 0;  // of one token (of a state: in all), in one part of one unit
  bool operator==(const LayoutEntry&) const = default;
};

// Entry `index` of the whole model, with all its units.
struct ModelEntry {
  int32_t index = 0;
  LayoutEntry whole;
  bool operator==(const ModelEntry&) const = default;
};

// A rank's entry: units [first_unit, first_unit + units) of the model's entry `index`.
struct HeldEntry {
  int32_t index = 0;
  int32_t first_unit = 0;
  int32_t units = 0;
  bool operator==(const HeldEntry&) const = default;
};

struct RankDesc {
  std::string name;                // "pp0 pcp1 tp3"
  int32_t context_rank = 0;        // which positions it holds
  std::vector<HeldEntry> entries;  // of a block, in this order
  std::vector<HeldEntry> states;   // of a slot, in this order
  bool operator==(const RankDesc&) const = default;
};

// Sizes of one replica's grid of ranks, and the processes they live in. What holds what is said by RankDesc alone.
struct GridDesc {
  int32_t pp = 1, pcp = 1, tp = 1, dcp = 1;
  int32_t processes = 1;
  bool operator==(const GridDesc&) const = default;
};

struct LayoutDesc {
  int32_t block_size = 0;    // tokens of a block on one rank
  int32_t context_size = 1;  // position t is held by context rank (t / block_size) mod context_size
  GridDesc grid;
  // Of the whole model, by ascending index; where it lives in several processes, those that this one holds a part of.
  std::vector<ModelEntry> entries;
  std::vector<ModelEntry> states;  // empty: the model keeps no recurrent state
  std::vector<RankDesc> ranks;     // of this process
  bool operator==(const LayoutDesc&) const = default;
};

inline constexpr int32_t kBlockTokensMax = 1 << 20;
inline constexpr int32_t kContextRanksMax = 256;
inline constexpr size_t kRanksMax = 1024;          // of a process
inline constexpr size_t kLayoutEntriesMax = 4096;  // of a model, of a rank

// kOutOfRange, with what and where, for what can't be a layout: an entry that is held but not described, units beyond
// an entry's, sizes beyond the bounds.
Result<void> check_layout(const LayoutDesc& layout);

// kMismatch names the first difference that keeps KV from going from one to the other, with both values.
Result<void> compare_layout(const LayoutDesc& ours, const LayoutDesc& theirs);

// What a configuration says of the other side's grid. Nothing: not said.
struct GridClaim {
  std::optional<int32_t> tp, pp, pcp, dcp;
  bool operator==(const GridClaim&) const = default;
};
// kMismatch names the first size that is not as claimed: "tp_size: the configuration says 8 of the prefill engine, it
// has 4". `whose`: "prefill engine".
Result<void> check_claim(const GridClaim& claim, const GridDesc& grid, std::string_view whose);

void encode_layout(const LayoutDesc& layout, ByteWriter& writer);
// What it returns has passed check_layout, if reader.ok().
Result<LayoutDesc> decode_layout(ByteReader& reader);

}  // namespace baton::wire
