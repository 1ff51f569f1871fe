// The indexer with pooled keys against transformers' glm5_next and a float64 reference (tests/data/goldens/families,
// indexer_pooling): the same positions, whatever the chunks.
#include "models/layers/indexer.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "models/golden_checkpoint.h"

namespace baton::models {
namespace {

constexpr int64_t kHidden = 128, kQueryRank = 48;

kernels::PackedMatrix pack(const std::vector<float>& values, int64_t out, int64_t in) {
  auto packed = *kernels::PackedMatrix::reserve({.out_features = out, .in_features = in, .isa = tensor::detect_isa()});
  packed.pack_rows(0, out, reinterpret_cast<const std::byte*>(values.data()));
  EXPECT_TRUE(packed.finish().has_value());
  return packed;
}

class PooledIndexer : public testing::Test {
 protected:
  PooledIndexer() {
    std::map<std::string, std::vector<float>> tensors;
    for (const auto& tensor : read_json(golden_folder("indexer_pooling") + "/manifest.json")["tensors"]) {
      tensors[tensor["name"]] = manifest_values(tensor);
    }
    const int64_t q_features = int64_t{config_.heads} * config_.dim;
    weights_.q_b = {pack(tensors.at("indexer.wq_b.weight"), q_features, kQueryRank), {}};
    weights_.k = {pack(tensors.at("indexer.wk.weight"), config_.dim, kHidden), {}};
    weights_.k_norm = tensors.at("indexer.k_norm.weight");
    weights_.k_norm_bias = tensors.at("indexer.k_norm.bias");
    weights_.head_weights = {pack(tensors.at("indexer.weights_proj.weight"), config_.heads, kHidden), {}};
    weights_.pool_gate = Linear{pack(tensors.at("indexer.index_kpool_compress_gate"), config_.dim, kHidden), {}};
    weights_.pool_bias = tensors.at("indexer.index_kpool_compress_ape");
  }

  // The positions of every token, [tokens, stride], filled up with -1; the prompt in steps of `chunk` tokens.
  std::vector<int32_t> select(const GoldenCase& golden, int64_t chunk) {
    const auto x = golden.array<float>("x"), cq = golden.array<float>("cq");
    const int64_t tokens = std::ssize(x) / kHidden;
    ComputePool pool({.threads = 2, .spin_us = 0});
    kernels::TokenCacheView cache{
        .entry = {.kind = kernels::PagedKind::kIndexKeys, .dim = config_.stored_dim(), .dtype = tensor::DType::kF32},
        .block_size = 16};
    cache.token_bytes = kernels::entry_token_bytes(cache.entry);
    cache.block_stride = cache.token_bytes * cache.block_size;
    std::vector<int32_t> table(static_cast<size_t>((tokens + 15) / 16));
    std::iota(table.rbegin(), table.rend(), 0);
    std::vector<std::byte> memory(table.size() * static_cast<size_t>(cache.block_stride), std::byte{0xff});
    cache.base = memory.data();

    auto selection = *IndexSelection::allocate(config_, tokens, 512, 2);
    auto input = *QuantizedInput::allocate(tokens, kHidden), query = *QuantizedInput::allocate(tokens, kQueryRank);
    std::vector<int32_t> all;
    for (int64_t begin = 0; begin < tokens; begin += chunk) {
      const int64_t rows = std::min(chunk, tokens - begin);
      const kernels::SequenceSlice slice{
          .block_table = table.data(), .context_len = begin, .row_begin = 0, .row_count = static_cast<int>(rows)};
      input.set(x.data() + begin * kHidden, rows, kHidden);
      query.set(cq.data() + begin * kQueryRank, rows, kQueryRank);
      run_indexer(weights_,
                  {.config = config_, .rows = rows, .slices = {&slice, 1}, .cache = cache, .isa = tensor::detect_isa()},
                  selection, input, query, pool);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < selection.stride(); ++i) {
          const bool chosen = i < selection.counts()[r];
          all.push_back(chosen ? selection.positions()[r * selection.stride() + i] : -1);
        }
      }
    }
    return all;
  }

  IndexerConfig config_{.heads = 4, .dim = 32, .top_k = 8, .pool = 4};
  IndexerWeights weights_;
};

TEST_F(PooledIndexer, SelectsWhatGlm5NextSelects) {
  const GoldenCase golden("indexer_pooling", "long");
  const auto wanted = golden.array<int32_t>("selected");
  for (const int64_t chunk : {40, 1, 7}) EXPECT_EQ(select(golden, chunk), wanted) << chunk;
}

}  // namespace
}  // namespace baton::models
