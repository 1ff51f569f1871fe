#include "wire/handshake.h"

#include <gtest/gtest.h>

#include <functional>

namespace baton::wire {
namespace {

EngineIdentity example() {
  EngineIdentity identity;
  identity.software_version = "0.1.0";
  identity.engine_id = "p0";
  identity.instance_nonce = 77;
  identity.model_config = "LlamaForCausalLM 01";
  identity.quantisation = "f32, q4_1";
  identity.model_fingerprint = "sha256:ab";
  identity.tokenizer_hash = "t1";
  identity.layout = {
      .block_size = 16,
      .entries = {{0, {.kind = "keys_values", .dtype = "bf16", .units = 3, .parts = 2, .token_bytes = 128}},
                  {1, {.kind = "latent", .dtype = "bf16", .token_bytes = 1152}}},
      .states = {{0, {.kind = "state", .dtype = "f32", .units = 4, .token_bytes = 65536}}},
      .ranks = {{"pp0 pcp0 tp0", 0, {{0, 0, 3}, {1, 0, 1}}, {{0, 0, 4}}}}};
  identity.layer_names = {"layers.0", "layers.1"};
  identity.profile = {.isa = "avx512", .kernel_revision = 4, .onednn_version = "2.6.3"};
  return identity;
}

TEST(Handshake, SurvivesTheWire) {
  ByteWriter writer;
  encode_identity(example(), writer);
  ByteReader reader(writer.view());
  const auto back = decode_identity(reader);
  ASSERT_TRUE(back.has_value());
  ASSERT_TRUE(reader.finish("identity").has_value());
  EXPECT_EQ(back->engine_id, "p0");
  EXPECT_EQ(back->instance_nonce, 77u);
  EXPECT_TRUE(compare_identity(example(), *back).has_value());
}

TEST(Handshake, EachDifferenceIsRefusedWithBothValues) {
  struct Case {
    std::function<void(EngineIdentity&)> change;
    std::string message;
  };
  const Case cases[] = {
      {[](auto& i) { i.protocol_version = 9; }, "hand-off protocol version: ours 5, theirs 9"},
      {[](auto& i) { i.software_version = "0.2.0"; },
       "software version (baton_allow_other_version lets it differ): ours 0.1.0, theirs 0.2.0"},
      {[](auto& i) { i.model_fingerprint = "sha256:cd"; },
       "model fingerprint: ours sha256:ab (LlamaForCausalLM 01; weights f32, q4_1), theirs sha256:cd (LlamaForCausalLM "
       "01; weights f32, q4_1)"},
      {[](auto& i) {
         i.model_fingerprint = "sha256:ef";
         i.quantisation = "q8_0, f32";
       },
       "model fingerprint: ours sha256:ab (LlamaForCausalLM 01; weights f32, q4_1), theirs sha256:ef (LlamaForCausalLM "
       "01; weights q8_0, f32)"},
      {[](auto& i) { i.tokenizer_hash = "t2"; }, "tokenizer: ours t1, theirs t2"},
      {[](auto& i) { i.layout.entries[1].whole.kind = "index_keys"; },
       "kind of cache entry 1: ours latent, theirs index_keys"},
      {[](auto& i) { i.layout.entries[1].whole.dtype = "f8e4m3"; }, "dtype of cache entry 1: ours bf16, theirs f8e4m3"},
      {[](auto& i) { i.layout.entries[1].whole.token_bytes = 656; },
       "bytes per token of cache entry 1: ours 1152, theirs 656"},
      {[](auto& i) { i.layout.block_size = 24; },
       "block size: ours 16, theirs 24: one must be a multiple of the other"},
      {[](auto& i) { i.layout.entries[1].index = 2; }, "cache entry 1: theirs is missing"},
      {[](auto& i) { i.layout.entries.emplace_back(); }, "number of cache entries: ours 2, theirs 3"},
      {[](auto& i) { i.layout.entries[0].whole.units = 1; }, "heads of cache entry 0: ours 3, theirs 1"},
      {[](auto& i) { i.layout.entries[0].whole.parts = 1; }, "parts of cache entry 0: ours 2, theirs 1"},
      {[](auto& i) { i.layout.states.clear(); }, "number of state entries: ours 1, theirs 0"},
      {[](auto& i) { i.layout.states[0].whole.token_bytes = 4; },
       "bytes per token of state entry 0: ours 65536, theirs 4"},
      {[](auto& i) { i.layer_names[1] = "mtp.0"; }, "name of layer 1: ours layers.1, theirs mtp.0"},
      {[](auto& i) { i.layer_names.pop_back(); }, "number of layer names: ours 2, theirs 1"},
      {[](auto& i) { i.profile.isa = "avx2"; }, "instruction set: ours avx512, theirs avx2"},
      {[](auto& i) { i.profile.kernel_revision = 5; }, "kernel revision: ours 4, theirs 5"},
      {[](auto& i) { i.profile.onednn_version = ""; }, "oneDNN version: ours 2.6.3, theirs "},
  };
  for (const auto& c : cases) {
    EngineIdentity theirs = example();
    c.change(theirs);
    const auto result = compare_identity(example(), theirs);
    ASSERT_FALSE(result.has_value()) << c.message;
    EXPECT_EQ(result.error().code(), Code::kMismatch);
    EXPECT_EQ(result.error().message(), c.message);
  }
}

TEST(Handshake, BlocksOfAllContextRanksMustFitIntoEachOther) {
  EngineIdentity ours = example(), theirs = example();
  ours.layout.context_size = 2;
  theirs.layout.context_size = 3;
  const auto result = compare_identity(ours, theirs);
  EXPECT_EQ(result.error().message(),
            "tokens of a block over all context ranks: ours 32, theirs 48: one must be a multiple of the other");
}

TEST(Handshake, AnEngineOfSeveralProcessesIsComparedByWhatThisOneHolds) {
  EngineIdentity theirs = example();
  theirs.layout.grid = {.pp = 2, .processes = 2};
  theirs.layout.entries.erase(theirs.layout.entries.begin());
  theirs.layout.ranks = {{"pp1 pcp0 tp0", 0, {{1, 0, 1}}, {}}};
  theirs.layout.states.clear();
  theirs.layer_names = {"layers.1"};
  EXPECT_TRUE(compare_identity(example(), theirs).has_value());
  theirs.layout.entries[0].whole.dtype = "i8";
  EXPECT_EQ(compare_identity(example(), theirs).error().message(), "dtype of cache entry 1: ours bf16, theirs i8");
}

TEST(Handshake, LayoutsThatCantBeAreRefused) {
  const auto decoded = [](const LayoutDesc& layout) {
    ByteWriter writer;
    encode_layout(layout, writer);
    ByteReader reader(writer.view());
    return decode_layout(reader);
  };
  ASSERT_TRUE(decoded(example().layout).has_value());
  EXPECT_EQ(*decoded(example().layout), example().layout);
  const std::function<void(LayoutDesc&)> changes[] = {
      [](auto& l) { l.block_size = 0; },
      [](auto& l) { l.block_size = kBlockTokensMax + 1; },
      [](auto& l) { l.context_size = 0; },
      [](auto& l) { l.context_size = kContextRanksMax + 1; },
      [](auto& l) { l.entries[1].index = 0; },
      [](auto& l) { l.entries[0].whole.units = 0; },
      [](auto& l) { l.entries[0].whole.parts = 3; },
      [](auto& l) { l.entries[0].whole.token_bytes = 0; },
      [](auto& l) { l.ranks[0].context_rank = 1; },
      [](auto& l) { l.ranks[0].context_rank = -1; },
      [](auto& l) { l.ranks[0].entries[0].index = 7; },
      [](auto& l) { l.ranks[0].entries[1].index = 0; },
      [](auto& l) { l.ranks[0].entries[0].first_unit = 1; },
      [](auto& l) { l.ranks[0].entries[0].first_unit = -1; },
      [](auto& l) { l.ranks[0].entries[0].units = 0; },
      [](auto& l) { l.ranks[0].states[0].units = INT32_MAX; },
      [](auto& l) { l.ranks.resize(kRanksMax + 1); },
      [](auto& l) { l.entries.resize(kLayoutEntriesMax + 1); },
  };
  for (size_t i = 0; i < std::size(changes); ++i) {
    auto layout = example().layout;
    changes[i](layout);
    EXPECT_EQ(decoded(layout).error().code(), Code::kOutOfRange) << i;
  }
}

TEST(Handshake, ClaimsAboutTheOthersGridAreChecked) {
  const GridDesc grid{.pp = 4, .pcp = 8, .tp = 1, .dcp = 1};
  EXPECT_TRUE(check_claim({}, grid, "prefill engine").has_value());
  EXPECT_TRUE(check_claim({.tp = 1, .pp = 4, .pcp = 8, .dcp = 1}, grid, "prefill engine").has_value());
  EXPECT_EQ(check_claim({.tp = 8}, grid, "prefill engine").error().message(),
            "tp_size: kv_connector_extra_config says 8 of the prefill engine, it has 1");
  EXPECT_EQ(check_claim({.tp = 1, .pcp = 4}, grid, "decode engine").error().code(), Code::kMismatch);
  EXPECT_EQ(check_claim({.pp = 1}, grid, "decode engine").error().code(), Code::kMismatch);
  EXPECT_EQ(check_claim({.dcp = 2}, grid, "decode engine").error().code(), Code::kMismatch);
}

TEST(Handshake, WhatMayDiffer) {
  EngineIdentity theirs = example();
  theirs.layout.block_size = 768;
  theirs.layout.grid.tp = 3;
  theirs.layout.ranks = {{"a", 0, {{0, 0, 2}, {1, 0, 1}}, {}}, {"b", 0, {{0, 2, 1}}, {{0, 0, 4}}}};
  theirs.engine_id = "d7";
  theirs.instance_nonce = 1;
  theirs.tokenizer_hash.clear();
  theirs.quantisation.clear();
  EXPECT_TRUE(compare_identity(example(), theirs).has_value());
  theirs.profile.isa = "avx2";
  EXPECT_TRUE(compare_identity(example(), theirs, {.allow_other_profile = true}).has_value());
  theirs.software_version = "0.2.0";
  EXPECT_EQ(compare_identity(example(), theirs, {.allow_other_profile = true}).error().code(), Code::kMismatch);
  EXPECT_TRUE(
      compare_identity(example(), theirs, {.allow_other_profile = true, .allow_other_version = true}).has_value());
}

TEST(Handshake, AbsurdSizesAreRefused) {
  EngineIdentity identity = example();
  identity.model_fingerprint.assign(4096, 'x');
  ByteWriter writer;
  encode_identity(identity, writer);
  ByteReader reader(writer.view());
  EXPECT_EQ(decode_identity(reader).error().code(), Code::kOutOfRange);
}

}  // namespace
}  // namespace baton::wire
