// Grids of ranks over small models, written down independently of the planner: what each rank holds, byte by byte.
#pragma once

#include <cstring>
#include <functional>
#include <random>

#include "transfer/holdings.h"

namespace baton::transfer::testing {

struct GridShape {
  int pp = 1, pcp = 1, tp = 1, dcp = 1;
  int block = 16;  // tokens of a rank's block

  int team() const { return pcp * tp; }
  int context_size() const { return pcp * dcp; }
};

// Layers; each keeps entries per token and perhaps a state.
struct ModelShape {
  std::vector<std::vector<kv::CacheEntry>> layers;
  std::vector<bool> stateful;
  kv::CacheEntry state{.kind = "state", .dtype = "f32", .units = 8, .parts = 1, .token_bytes = 24};
};

struct Interval {
  int begin = 0, end = 0;
};
inline Interval share(int total, int parts, int index) { return {total * index / parts, total * (index + 1) / parts}; }

// Ranks of stages [first_stage, end_stage), as a process holds them. KV heads are those of a rank's context group, more
// ranks than heads share; states are cut by heads over the team.
inline std::vector<kv::RankCache> ranks_of(const ModelShape& model, const GridShape& grid, int64_t blocks,
                                           int64_t slots, int first_stage = 0, int end_stage = -1) {
  std::vector<kv::RankCache> ranks;
  const int layers = static_cast<int>(model.layers.size());
  for (int stage = first_stage; stage < (end_stage < 0 ? grid.pp : end_stage); ++stage) {
    for (int m = 0; m < grid.team(); ++m) {
      const int pcp = m / grid.tp, tp = m % grid.tp, groups = grid.tp / grid.dcp, group = tp / grid.dcp;
      kv::RankCache rank;
      rank.name = fmt::format("pp{} pcp{} tp{}", stage, pcp, tp);
      rank.context_rank = pcp * grid.dcp + tp % grid.dcp;
      std::vector<kv::CacheEntry> entries, states;
      int entry_index = 0, state_index = 0;
      const auto mine = share(layers, grid.pp, stage);
      for (int layer = 0; layer < layers; ++layer) {
        const bool here = mine.begin <= layer && layer < mine.end;
        for (auto entry : model.layers[static_cast<size_t>(layer)]) {
          const int total = entry.units;
          const Interval heads{total * group / groups, (total * (group + 1) + groups - 1) / groups};
          if (here) {
            rank.entry_parts.push_back({entry_index, heads.begin, total});
            entry.units = heads.end - heads.begin;
            entries.push_back(entry);
          }
          ++entry_index;
        }
        if (!model.stateful[static_cast<size_t>(layer)]) continue;
        const auto heads = share(model.state.units, grid.team(), m);
        if (here && heads.begin < heads.end) {
          rank.state_parts.push_back({state_index, heads.begin, model.state.units});
          states.push_back(model.state);
          states.back().units = heads.end - heads.begin;
        }
        ++state_index;
      }
      if (!entries.empty()) rank.layout.blocks = kv::PagedGeometry(grid.block, entries);
      if (!states.empty()) rank.layout.states = kv::PagedGeometry(1, states);
      rank.layout.block_count = blocks;
      rank.layout.slot_count = slots;
      ranks.push_back(std::move(rank));
    }
  }
  return ranks;
}

// The byte that a model has at a place; position -1 - p of a state.
inline std::byte value(uint64_t prompt, int entry, int head, int part, int64_t position, int64_t byte) {
  uint64_t x = prompt * 0x9E3779B97F4A7C15 + static_cast<uint64_t>(entry) * 1000003 +
               static_cast<uint64_t>(head) * 7919 + static_cast<uint64_t>(part) * 104729 +
               static_cast<uint64_t>(position) * 15485863 + static_cast<uint64_t>(byte) * 32452843;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9;
  return static_cast<std::byte>(x >> 56);
}

// Calls visit(byte, what it must be, position) for every byte that the ranks hold of positions [begin, end).
template <typename Visit>
void for_each_byte(const Holdings& holdings, std::byte* arena, const std::vector<int32_t>& blocks, uint64_t prompt,
                   int64_t begin, int64_t end, Visit visit) {
  const int n = holdings.context_size, size = holdings.block_size;
  for (int r = 0; r < holdings.rank_count(); ++r) {
    const auto& rank = holdings.rank(r);
    for (size_t e = 0; e < rank.entry_parts.size(); ++e) {
      const auto& kept = rank.layout.blocks.entries()[e];
      for (int part = 0; part < kept.parts; ++part) {
        for (int unit = 0; unit < kept.units; ++unit) {
          for (int64_t t = begin; t < end; ++t) {
            if (t / size % n != rank.context_rank) continue;
            std::byte* at = arena + holdings.arenas.data_offset(r) +
                            rank.layout.block_offset(blocks[static_cast<size_t>(t / size / n)]) +
                            rank.layout.blocks.unit_offset(static_cast<int>(e), part, unit) +
                            t % size * kept.token_bytes;
            for (int64_t b = 0; b < kept.token_bytes; ++b) {
              visit(at[b], value(prompt, rank.entry_parts[e].index, rank.entry_parts[e].first_unit + unit, part, t, b),
                    t);
            }
          }
        }
      }
    }
  }
}

template <typename Visit>
void for_each_state_byte(const Holdings& holdings, std::byte* arena, int64_t slot, uint64_t prompt, Visit visit) {
  for (int r = 0; r < holdings.rank_count(); ++r) {
    const auto& rank = holdings.rank(r);
    for (size_t e = 0; e < rank.state_parts.size(); ++e) {
      const auto& kept = rank.layout.states.entries()[e];
      for (int unit = 0; unit < kept.units; ++unit) {
        std::byte* at = arena + holdings.arenas.data_offset(r) + rank.layout.slot_offset(slot) +
                        rank.layout.states.unit_offset(static_cast<int>(e), 0, unit);
        const auto& part = rank.state_parts[e];
        for (int64_t b = 0; b < kept.token_bytes; ++b) {
          visit(at[b], value(prompt, part.index, part.first_unit + unit, 2, -1, b));
        }
      }
    }
  }
}

inline void write_prompt(const Holdings& holdings, std::byte* arena, const std::vector<int32_t>& blocks,
                         uint64_t prompt, int64_t tokens) {
  for_each_byte(holdings, arena, blocks, prompt, 0, tokens, [](std::byte& at, std::byte is, int64_t) { at = is; });
}
inline void write_state(const Holdings& holdings, std::byte* arena, int64_t slot, uint64_t prompt) {
  for_each_state_byte(holdings, arena, slot, prompt, [](std::byte& at, std::byte is) { at = is; });
}
// Bytes of tokens [begin, end) that are not the prompt's.
inline int64_t wrong_bytes(const Holdings& holdings, std::byte* arena, const std::vector<int32_t>& blocks,
                           uint64_t prompt, int64_t begin, int64_t end) {
  int64_t wrong = 0;
  for_each_byte(holdings, arena, blocks, prompt, begin, end,
                [&](std::byte at, std::byte is, int64_t) { wrong += at != is; });
  return wrong;
}
inline int64_t wrong_state_bytes(const Holdings& holdings, std::byte* arena, int64_t slot, uint64_t prompt) {
  int64_t wrong = 0;
  for_each_state_byte(holdings, arena, slot, prompt, [&](std::byte at, std::byte is) { wrong += at != is; });
  return wrong;
}

// A random model whose units are small: keys and values, latents, index keys, states.
inline ModelShape random_model(std::mt19937_64& random) {
  ModelShape model;
  const int kind = static_cast<int>(random() % 3);
  const int layers = 1 + static_cast<int>(random() % 5);
  model.state.units = 1 + static_cast<int>(random() % 8);
  for (int layer = 0; layer < layers; ++layer) {
    std::vector<kv::CacheEntry> entries;
    if (kind == 0) {
      const int heads = 1 << random() % 4;
      entries.push_back(
          {.kind = "keys_values", .dtype = "bf16", .units = layer % 2 == 0 ? heads : 3, .parts = 2, .token_bytes = 4});
    } else {
      entries.push_back({.kind = "latent", .dtype = "i8", .token_bytes = 7});
      if (kind == 2) entries.push_back({.kind = "index_keys", .dtype = "i8", .token_bytes = 3});
    }
    model.layers.push_back(std::move(entries));
    model.stateful.push_back(random() % 2 == 0);
  }
  return model;
}

inline GridShape random_grid(std::mt19937_64& random, const ModelShape& model, int block) {
  GridShape grid;
  grid.pp = 1 + static_cast<int>(random() % model.layers.size());
  grid.pcp = 1 << random() % 3;
  grid.tp = 1 << random() % 4;
  grid.dcp = 1 << random() % 4;
  while (grid.tp % grid.dcp != 0 || grid.context_size() > 16) grid.dcp /= 2;
  grid.block = block;
  return grid;
}

}  // namespace baton::transfer::testing
