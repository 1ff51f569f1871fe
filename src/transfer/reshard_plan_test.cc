// What the planner says, beside a mapping written down byte by byte.
#include "transfer/reshard_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "kv/seal_table.h"
#include "transfer/reshard_test_support.h"
#include "transport/memory/memory_mover.h"

namespace baton::transfer {
namespace {

using namespace testing;
using HoldingsPtr = std::shared_ptr<const Holdings>;

HoldingsPtr holdings(const ModelShape& model, const GridShape& grid, int64_t blocks, int64_t slots = 0, int first = 0,
                     int end = -1) {
  auto made = make_holdings(ranks_of(model, grid, blocks, slots, first, end), grid.context_size());
  EXPECT_TRUE(made.has_value()) << made.error().to_string();
  return std::make_shared<const Holdings>(*std::move(made));
}

std::vector<int32_t> shuffled(int64_t count, std::mt19937_64& random) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  std::ranges::shuffle(ids, random);
  return ids;
}

std::vector<uint64_t> checksums(const Holdings& from, const std::byte* arena, const PartCopy& part) {
  const auto& geometry = from.geometry(part.rank, part.state);
  const std::byte* block = arena + from.offset(part.rank, part.from, part.state);
  std::vector<uint64_t> sums;
  for (int entry = 0; entry < geometry.entry_count(); ++entry) {
    for (int unit = 0; unit < geometry.entries()[static_cast<size_t>(entry)].units; ++unit) {
      sums.push_back(kv::unit_checksum(geometry, block, entry, unit, part.tokens));
    }
  }
  return sums;
}

// Moves a part as a connector does: from the arena, or span by span and frame by frame through payloads.
void move_part(const ReshardPlan& plan, const PartCopy& part, std::span<std::byte> source, std::span<std::byte> target,
               bool payloads) {
  transport::MemoryMover mover;
  const auto sums = checksums(plan.from(), source.data(), part);
  const auto store = [&](PartMoves& moves, std::span<const std::byte> from) {
    const auto moved = mover.move(moves.moves, from, target);
    ASSERT_TRUE(moved) << moved.error().to_string();
    for (const auto& repeat : moves.repeats) {
      std::memcpy(target.data() + repeat.to, target.data() + repeat.from, static_cast<size_t>(repeat.bytes));
    }
  };
  PartMoves moves;
  if (!payloads) {
    append_arena_moves(plan, part, sums, moves);
    return store(moves, source);
  }
  const auto& geometry = plan.from().geometry(part.rank, part.state);
  for (const auto& span : plan.spans(part.rank, part.state)) {
    for (uint32_t e = 0; e < span.from.entry_count;) {
      const uint32_t count = std::max(1u, frame_entries(geometry, span.from, part.tokens, e) / 2);
      const wire::UnitSpan frame{span.from.first_entry + e, count, span.from.first_unit, span.from.unit_count};
      ASSERT_TRUE(span_fits(geometry, frame));
      std::vector<std::byte> payload;
      const auto block = source.subspan(static_cast<size_t>(plan.from().offset(part.rank, part.from, part.state)));
      for (const auto& piece : payload_pieces(geometry, block, part.tokens, frame)) {
        payload.insert(payload.end(), piece.begin(), piece.end());
      }
      EXPECT_EQ(std::ssize(payload), span_bytes(geometry, frame, part.tokens));
      std::vector<uint64_t> frame_sums;
      for (uint32_t i = 0; i < count; ++i) {
        for (uint32_t u = 0; u < frame.unit_count; ++u) {
          frame_sums.push_back(sums[static_cast<size_t>(geometry.first_unit(static_cast<int>(frame.first_entry + i))) +
                                    frame.first_unit + u]);
        }
      }
      EXPECT_EQ(frame_sums.size(), span_units(frame));
      moves.clear();
      append_payload_moves(plan, part, span, e, count, frame_sums, moves);
      store(moves, payload);
      e += count;
    }
  }
}

// A prompt on P, everything that is wanted of it moved to D, and every byte of D looked at.
void check_request(std::mt19937_64& random, const ModelShape& model, const GridShape& p, const GridShape& d,
                   int64_t tokens) {
  SCOPED_TRACE(fmt::format("pp{} pcp{} tp{} dcp{} block {} -> pp{} pcp{} tp{} dcp{} block {}, {} tokens", p.pp, p.pcp,
                           p.tp, p.dcp, p.block, d.pp, d.pcp, d.tp, d.dcp, d.block, tokens));
  const auto blocks_of = [](const GridShape& grid, int64_t n) {
    return (n + grid.block * grid.context_size() - 1) / (grid.block * grid.context_size());
  };
  const bool stateful = std::ranges::find(model.stateful, true) != model.stateful.end();
  const int64_t slots = stateful ? 3 : 0;
  const auto from = holdings(model, p, blocks_of(p, tokens) + 2, slots);
  const auto to = holdings(model, d, blocks_of(d, tokens) + 2, slots);
  const auto from_blocks = shuffled(from->block_count, random), to_blocks = shuffled(to->block_count, random);
  std::vector<std::byte> source(static_cast<size_t>(from->arenas.data_bytes()), std::byte{0x55});
  std::vector<std::byte> target(static_cast<size_t>(to->arenas.data_bytes()), std::byte{0xEE});
  write_prompt(*from, source.data(), from_blocks, 7, tokens);
  if (stateful) write_state(*from, source.data(), 2, 7);

  const int64_t wanted = tokens - static_cast<int64_t>(random() % 2);
  const int64_t skip = static_cast<int64_t>(random() % 3) * to->block_tokens() % std::max<int64_t>(wanted, 1) /
                       to->block_tokens() * to->block_tokens();
  std::vector<uint64_t> generations(from_blocks.size(), 2);
  std::vector<BlockId> ids;
  for (const int32_t id : to_blocks) ids.push_back(BlockId(id));
  CopyRequest request{.token_count = tokens,
                      .wanted_tokens = wanted,
                      .skip_tokens = skip,
                      .from_blocks = from_blocks,
                      .generations = generations,
                      .to_blocks = ids};
  if (stateful) request.from_slot = 2, request.to_slot = 1;

  const ReshardPlan plan(from, to, static_cast<uint32_t>(random() % 16));
  const ReshardPlan* const plans[] = {&plan};
  EXPECT_EQ(ReshardPlan::missing(plans).value_or("nothing"), "nothing");
  const bool payloads = random() % 2 == 0;
  const uint64_t end = plan.parts_for(wanted);
  for (uint64_t i = plan.first_part(skip); i < end; ++i) {
    const int64_t before = plan.tokens_before(i);
    if (random() % 4 == 0 && before > skip) {  // what is said to be complete is complete
      EXPECT_EQ(wrong_bytes(*to, target.data(), to_blocks, 7, skip, std::min(before, wanted)), 0);
    }
    move_part(plan, plan.part_copy(i, request), source, target, payloads);
  }
  EXPECT_GE(plan.tokens_before(end), wanted);
  for (uint64_t i = 0; stateful && i < plan.state_part_count(); ++i) {
    move_part(plan, plan.state_copy(i, request), source, target, payloads);
  }

  // Everything wanted is here, and nothing else was touched.
  std::vector<std::byte> expected(target.size(), std::byte{0xEE});
  for_each_byte(*to, expected.data(), to_blocks, 7, skip, wanted,
                [](std::byte& at, std::byte is, int64_t) { at = is; });
  if (stateful) write_state(*to, expected.data(), 1, 7);
  ASSERT_EQ(target == expected, true);

  // The descriptors say the same as the moves: applied one by one they yield the same arena.
  std::vector<std::byte> again(target.size(), std::byte{0xEE});
  for (const Copy& copy : plan.copies(request)) {
    const auto& theirs = from->geometry(copy.from_rank, copy.state);
    const auto& ours = to->geometry(copy.to_rank, copy.state);
    for (int e = 0; e < copy.entry_count; ++e) {
      const auto& kept = theirs.entries()[static_cast<size_t>(copy.from_entry + e)];
      for (int part = 0; part < kept.parts; ++part) {
        for (int u = 0; u < copy.unit_count; ++u) {
          const auto at = from->offset(copy.from_rank, copy.from_block, copy.state) +
                          theirs.unit_offset(copy.from_entry + e, part, copy.from_unit + u) +
                          copy.from_token * kept.token_bytes;
          const auto put = to->offset(copy.to_rank, copy.to_block, copy.state) +
                           ours.unit_offset(copy.to_entry + e, part, copy.to_unit + u) +
                           copy.to_token * kept.token_bytes;
          std::memcpy(again.data() + put, source.data() + at, static_cast<size_t>(copy.token_count * kept.token_bytes));
        }
      }
    }
  }
  ASSERT_EQ(again == expected, true);
}

TEST(ReshardPlan, RandomGridsAgreeWithAMappingByteByByte) {
  std::mt19937_64 random(11);
  constexpr int kBlocks[] = {16, 32, 48, 128, 768, 1536};
  for (int run = 0; run < 150 && !HasFailure(); ++run) {
    const auto model = random_model(random);
    // Sizes that divide each other, and now and then ones that don't: the plan itself doesn't mind.
    const int a = kBlocks[random() % 6], b = random() % 8 == 0 ? kBlocks[random() % 6] : random() % 2 == 0 ? a : 16;
    const bool turn = random() % 2 == 0;
    const auto p = random_grid(random, model, turn ? a : b), d = random_grid(random, model, turn ? b : a);
    check_request(random, model, p, d, 1 + static_cast<int64_t>(random() % (3 * std::max(a, b))));
  }
}

TEST(ReshardPlan, ReplicasAreSpreadByTheChoice) {
  ModelShape model{.layers = {2, {{.kind = "latent", .dtype = "bf16", .token_bytes = 8}}}, .stateful = {false, false}};
  const auto from = holdings(model, {.tp = 8}, 4);
  const auto to = holdings(model, {.tp = 1}, 4);
  std::set<int> givers;
  for (uint32_t choice = 0; choice < 8; ++choice) {
    const ReshardPlan plan(from, to, choice);
    for (int r = 0; r < 8; ++r) {
      if (plan.spans(r, false).empty()) continue;
      EXPECT_TRUE(givers.insert(r).second);
      EXPECT_EQ(plan.spans(r, false).size(), 1u);
    }
  }
  EXPECT_EQ(givers.size(), 8u);
}

TEST(ReshardPlan, WhatNoProcessHoldsIsNamed) {
  ModelShape model{.layers = {4, {{.kind = "keys_values", .dtype = "bf16", .units = 4, .parts = 2, .token_bytes = 4}}},
                   .stateful = {false, true, false, true}};
  const GridShape p{.pp = 4, .tp = 2}, d{.tp = 4};
  const auto to = holdings(model, d, 4, 2);
  const ReshardPlan first(holdings(model, p, 4, 2, 0, 2), to, 0), third(holdings(model, p, 4, 2, 2, 3), to, 0),
      fourth(holdings(model, p, 4, 2, 3, 4), to, 0);
  const ReshardPlan* const all[] = {&first, &third, &fourth};
  EXPECT_EQ(ReshardPlan::missing(all), std::nullopt);
  const ReshardPlan* const gap[] = {&first, &fourth};
  EXPECT_EQ(ReshardPlan::missing(gap).value_or(""), "head 0 of cache entry 2, context rank 0, is held by no rank");
}

// ---- Kimi K3.1's shape in the seeds' topologies: 93 layers, every fourth a latent with index keys, the others KDA.
ModelShape k31() {
  ModelShape model;
  for (int layer = 0; layer < 93; ++layer) {
    const bool latent = layer % 4 == 3 || layer == 92;
    std::vector<kv::CacheEntry> entries;
    if (latent) {
      entries.push_back({.kind = "latent", .dtype = "bf16", .token_bytes = 1152});
      entries.push_back({.kind = "index_keys", .dtype = "bf16", .token_bytes = 256});
    }
    model.layers.push_back(std::move(entries));
    model.stateful.push_back(!latent);
  }
  model.state = {.kind = "state", .dtype = "f32", .units = 96, .parts = 1, .token_bytes = 65536 + 4608};
  return model;
}
ModelShape gqa(int layers, int heads) {
  return {.layers = std::vector<std::vector<kv::CacheEntry>>(
              static_cast<size_t>(layers),
              {{.kind = "keys_values", .dtype = "bf16", .units = heads, .parts = 2, .token_bytes = 256}}),
          .stateful = std::vector<bool>(static_cast<size_t>(layers), false)};
}

struct Counted {
  int64_t fetched = 0, local = 0, states = 0, parts = 0;
};
// Descriptors of `tokens` tokens.
Counted count(const ModelShape& model, const GridShape& p, const GridShape& d, int64_t tokens) {
  const auto from = holdings(model, p, 64, 2), to = holdings(model, d, 4096, 2);
  std::vector<int32_t> from_blocks(static_cast<size_t>(from->blocks_for(tokens)), 1);
  const std::vector<uint64_t> generations(from_blocks.size(), 2);
  const std::vector<BlockId> to_blocks(static_cast<size_t>(to->blocks_for(tokens)), BlockId(1));
  const ReshardPlan plan(from, to, 3);
  const ReshardPlan* const plans[] = {&plan};
  EXPECT_EQ(ReshardPlan::missing(plans), std::nullopt);
  CopyRequest request{.token_count = tokens,
                      .wanted_tokens = tokens,
                      .from_blocks = from_blocks,
                      .generations = generations,
                      .to_blocks = to_blocks};
  const bool stateful = std::ranges::find(model.stateful, true) != model.stateful.end();
  if (stateful) request.from_slot = request.to_slot = 0;
  Counted counted{.parts = static_cast<int64_t>(plan.parts_for(tokens))};
  for (const Copy& copy : plan.copies(request)) {
    ++(copy.state ? counted.states : copy.local ? counted.local : counted.fetched);
  }
  return counted;
}

TEST(ReshardPlan, DescriptorsAreFewAndLargeInTheSeedsTopologies) {
  struct Case {
    const char* name;
    ModelShape model;
    GridShape p, d;
    int64_t tokens;  // one block of P's, over all its context ranks
    Counted expected;
  };
  const Case cases[] = {
      // A rank's 768 tokens of a stage's latents and index keys are one descriptor: they go to one context rank.
      {"K3.1 PP4 PCP4 TP4 -> TP16 DCP16",
       k31(),
       {4, 4, 4, 1, 768},
       {1, 1, 16, 16, 768},
       3072,
       {.fetched = 16, .local = 0, .states = 64, .parts = 16}},
      {"K3.1 PP4 PCP8 TP1 -> TP8 DCP8",
       k31(),
       {4, 8, 1, 1, 768},
       {1, 1, 8, 8, 768},
       6144,
       {.fetched = 32, .local = 0, .states = 32, .parts = 32}},
      // Latents are on all eight ranks: one gives.
      {"DeepSeek tp8 -> tp1",
       {std::vector<std::vector<kv::CacheEntry>>(61, {{.kind = "latent", .dtype = "bf16", .token_bytes = 1152}}),
        std::vector<bool>(61, false)},
       {1, 1, 8, 1, 128},
       {1, 1, 1, 1, 128},
       128,
       {.fetched = 1, .local = 0, .states = 0, .parts = 1}},
      // All four ranks of D want the latents: fetched once, copied three times.
      {"Kimi tp4 -> tp4",
       {std::vector<std::vector<kv::CacheEntry>>(61, {{.kind = "latent", .dtype = "bf16", .token_bytes = 1152}}),
        std::vector<bool>(61, false)},
       {1, 1, 4, 1, 128},
       {1, 1, 4, 1, 128},
       128,
       {.fetched = 1, .local = 3, .states = 0, .parts = 1}},
      {"GQA 8 KV heads tp4 -> tp2",
       gqa(32, 8),
       {1, 1, 4, 1, 128},
       {1, 1, 2, 1, 128},
       128,
       {.fetched = 4, .local = 0, .states = 0, .parts = 4}},
      {"equal, one rank",
       gqa(32, 8),
       {1, 1, 1, 1, 128},
       {1, 1, 1, 1, 128},
       128,
       {.fetched = 1, .local = 0, .states = 0, .parts = 1}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const auto counted = count(c.model, c.p, c.d, c.tokens);
    EXPECT_EQ(counted.fetched, c.expected.fetched);
    EXPECT_EQ(counted.local, c.expected.local);
    EXPECT_EQ(counted.states, c.expected.states);
    EXPECT_EQ(counted.parts, c.expected.parts);
    RecordProperty(c.name, fmt::format("{} descriptors a block", counted.fetched));
  }
}

TEST(Holdings, APeersLayoutIsTheOneThatWasDescribed) {
  std::mt19937_64 random(3);
  for (int run = 0; run < 50; ++run) {
    const auto model = random_model(random);
    const auto grid = random_grid(random, model, 16);
    const bool stateful = std::ranges::find(model.stateful, true) != model.stateful.end();
    const auto ours = holdings(model, grid, 9, stateful ? 4 : 0);
    const auto layout = describe(*ours, {});
    ASSERT_TRUE(wire::check_layout(layout).has_value());
    const auto theirs = holdings_of(layout, ours->block_count, ours->slot_count);
    ASSERT_TRUE(theirs.has_value());
    ASSERT_EQ(theirs->ranks.size(), ours->ranks.size());
    EXPECT_EQ(theirs->arenas.data_bytes(), ours->arenas.data_bytes());
    EXPECT_EQ(theirs->arenas.table_bytes(), ours->arenas.table_bytes());
    for (int r = 0; r < ours->rank_count(); ++r) {
      EXPECT_TRUE(theirs->geometry(r, false) == ours->geometry(r, false));
      EXPECT_TRUE(theirs->geometry(r, true) == ours->geometry(r, true));
      EXPECT_EQ(theirs->rank(r).entry_parts, ours->rank(r).entry_parts);
      EXPECT_EQ(theirs->arenas.data_offset(r), ours->arenas.data_offset(r));
    }
  }
}

TEST(Holdings, MoreThanAHostHasIsRefused) {
  const auto layout = describe(*holdings(gqa(2, 4), {.tp = 2}, 3), {});
  EXPECT_TRUE(holdings_of(layout, 3, 0).has_value());
  EXPECT_EQ(holdings_of(layout, -1, 0).error().code(), Code::kOutOfRange);
  EXPECT_EQ(holdings_of(layout, INT64_MAX, 0).error().code(), Code::kOutOfRange);
  EXPECT_EQ(holdings_of(layout, 3, INT64_MAX).error().code(), Code::kOutOfRange);  // their seal records alone
  EXPECT_TRUE(holdings_of(layout, 3, 5).has_value());
}

TEST(Holdings, RanksThatDontGoTogetherAreRefused) {
  const auto refused = [](auto change) {
    auto ranks = ranks_of(gqa(2, 4), {.tp = 2}, 3, 0);
    change(ranks);
    const auto made = make_holdings(ranks, 1);
    EXPECT_FALSE(made.has_value());
    if (!made) EXPECT_EQ(made.error().code(), Code::kInvalidArgument);
  };
  refused([](auto& ranks) { ranks.clear(); });
  refused([](auto& ranks) { ranks[1].layout.block_count = 4; });
  refused([](auto& ranks) { ranks[1].context_rank = 1; });
  refused([](auto& ranks) { ranks[1].entry_parts[0].total_units = 9; });
  refused([](auto& ranks) { ranks[1].entry_parts.pop_back(); });
  refused([](auto& ranks) { ranks[1].layout.slot_count = 2; });
  refused([](auto& ranks) { ranks[0].layout.block_count = ranks[1].layout.block_count = 0; });
}

}  // namespace
}  // namespace baton::transfer
