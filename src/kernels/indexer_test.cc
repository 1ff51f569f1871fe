// The lightning indexer: against its formula in double and its stated order; selection against a full sort; the same
// whatever the step, blocks, threads and Isa.
#include "kernels/indexer.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "kernels/latent_test_data.h"

namespace baton::kernels {
namespace {

using namespace test;

struct Shape {
  int heads = 5, dim = 32;
  int64_t tokens = 300;
  DType dtype = DType::kBF16;
  PagedEntry entry() const { return {.kind = PagedKind::kIndexKeys, .dim = dim, .dtype = dtype}; }
};

struct Sequence {
  Shape shape;
  std::vector<float> q, w, keys;
  explicit Sequence(Shape s, unsigned seed = 1) : shape(s) {
    q = random_floats(s.tokens * s.heads * s.dim, seed);
    w = random_floats(s.tokens * s.heads, seed + 1);
    keys = random_floats(s.tokens * s.dim, seed + 2);
  }
};

struct RunOptions {
  int64_t chunk = 1 << 30;
  int64_t first_row = 0;
  int block_size = 16;
  int threads = 1;
  Isa isa = tensor::detect_isa();
};

constexpr float kUnwritten = -12345.0f;

// Calls step(cache, slice, pool) chunk by chunk after the chunk's keys are written.
template <typename Step>
void for_chunks(const Sequence& s, const RunOptions& options, Step step) {
  TokenCache cache(s.shape.entry(), s.shape.tokens, options.block_size);
  ComputePool pool({.threads = options.threads, .spin_us = 0});
  for (int64_t begin = 0; begin < s.shape.tokens;) {
    const int64_t limit = begin < options.first_row ? options.first_row : begin + options.chunk;
    const int64_t end = std::min(s.shape.tokens, limit);
    const SequenceSlice slice = {
        .block_table = cache.table.data(), .context_len = begin, .row_count = static_cast<int>(end - begin)};
    write_index_keys(cache.view, {&slice, 1}, s.keys.data() + begin * s.shape.dim, s.shape.dim, options.isa, pool);
    if (begin >= options.first_row) step(cache, slice, pool);
    begin = end;
  }
}

IndexerArgs args_of(const Sequence& s, const TokenCache& cache, int64_t begin, Isa isa) {
  const int64_t q_row = int64_t{s.shape.heads} * s.shape.dim;
  return {.cache = cache.view,
          .heads = s.shape.heads,
          .q = s.q.data() + begin * q_row,
          .q_stride = q_row,
          .weights = s.w.data() + begin * s.shape.heads,
          .weights_stride = s.shape.heads,
          .isa = isa};
}

// [rows from first_row on][tokens]
std::vector<float> score(const Sequence& s, const RunOptions& options) {
  const int64_t tokens = s.shape.tokens;
  std::vector<float> scores((tokens - options.first_row) * tokens, kUnwritten);
  std::vector<std::byte> scratch(index_scores_scratch_bytes(s.shape.dim, options.threads));
  for_chunks(s, options, [&](const TokenCache& cache, const SequenceSlice& slice, ComputePool& pool) {
    index_scores(args_of(s, cache, slice.context_len, options.isa), {&slice, 1},
                 scores.data() + (slice.context_len - options.first_row) * tokens, tokens, scratch, pool);
  });
  return scores;
}

// [tokens][dim] as stored.
std::vector<float> stored(const Sequence& s) {
  std::vector<float> values;
  for_chunks(s, {.isa = Isa::kPortable}, [&](const TokenCache& cache, const SequenceSlice&, ComputePool&) {
    for (int64_t t = 0; t < s.shape.tokens; ++t) {
      const auto token = read_token(s.shape.entry(), cache.token(t));
      values.insert(values.end(), token.begin(), token.end());
    }
  });
  return values;
}

class Shapes : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Indexer, Shapes,
                         testing::Values(Shape{5, 32, 300, DType::kBF16}, Shape{64, 128, 150, DType::kF8E4M3},
                                         Shape{8, 128, 200, DType::kI8}, Shape{7, 24, 130, DType::kF32},
                                         Shape{1, 16, 129, DType::kF16}, Shape{80, 48, 270, DType::kBF16},
                                         Shape{24, 64, 260, DType::kF16}, Shape{130, 16, 140, DType::kF32}));

TEST_P(Shapes, FollowTheFormulaInDoubleAndTheStatedOrder) {
  const Sequence s(GetParam());
  const Shape& shape = s.shape;
  const auto keys = stored(s);
  for (Isa isa : isas()) {
    const int64_t first = isa == Isa::kPortable ? shape.tokens - 20 : 0;
    const auto got = score(s, {.first_row = first, .isa = isa});
    for (int64_t row = first; row < shape.tokens; row += 3) {
      for (int64_t t = 0; t < shape.tokens; ++t) {
        double sum = 0, size = 0;
        float ordered = 0;
        for (int h = 0; h < shape.heads; ++h) {
          double dot = 0, terms = 0;
          float chain = 0;
          for (int d = 0; d < shape.dim; ++d) {
            const float q = s.q[(row * shape.heads + h) * shape.dim + d], k = keys[t * shape.dim + d];
            dot += double{q} * k;
            terms += std::abs(double{q} * k);
            chain = std::fma(q, k, chain);
          }
          const float w = s.w[row * shape.heads + h];
          sum += w * std::max(0.0, dot);
          size += std::abs(w) * terms;
          ordered = std::fma(w, std::max(0.0f, chain), ordered);
        }
        const float value = got[(row - first) * shape.tokens + t];
        if (t > row) {
          ASSERT_EQ(value, kUnwritten) << "row " << row << " position " << t;
        } else {
          ASSERT_EQ(value, ordered) << isa_name(isa) << " row " << row << " position " << t;
          // One rounding of 2^-24 for each term of the two chains.
          ASSERT_NEAR(value, sum, (shape.dim + shape.heads) * 0x1p-24 * size) << isa_name(isa);
        }
      }
    }
  }
}

TEST_P(Shapes, SameBitsForAnyStepBlocksThreadsAndIsa) {
  const Sequence s(GetParam());
  const auto want = score(s, {});
  for (int64_t chunk : {1, 5, 100}) EXPECT_TRUE(same_bits(score(s, {.chunk = chunk}), want)) << "chunk " << chunk;
  for (int block_size : {7, 128, 768}) {
    EXPECT_TRUE(same_bits(score(s, {.chunk = 40, .block_size = block_size}), want)) << "block size " << block_size;
  }
  for (int threads : {2, 3, 4}) {
    EXPECT_TRUE(same_bits(score(s, {.threads = threads}), want)) << "threads " << threads;
    EXPECT_TRUE(same_bits(score(s, {.chunk = 2, .threads = threads}), want)) << "threads " << threads;
  }
}

// By a full sort of positions on their scores, then on themselves.
std::vector<int32_t> sorted_top(const std::vector<float>& scores, int k) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto worth = [&](int32_t i) {
    return std::isnan(scores[i]) ? -std::numeric_limits<double>::infinity() : double{scores[i]};
  };
  const auto before = [&](int32_t a, int32_t b) {
    if (std::isnan(scores[a]) != std::isnan(scores[b])) return std::isnan(scores[b]);
    return worth(a) > worth(b) || (worth(a) == worth(b) && a < b);
  };
  std::sort(order.begin(), order.end(), before);
  order.resize(std::min<size_t>(order.size(), k));
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<int32_t> top(const std::vector<float>& scores, int k) {
  std::vector<int32_t> selected(k + 1, -7);
  const int count = select_top_k(scores.data(), static_cast<int64_t>(scores.size()), k, selected.data());
  for (size_t i = count; i < selected.size(); ++i) EXPECT_EQ(selected[i], -7);
  selected.resize(count);
  return selected;
}

TEST(SelectTopK, IsAFullSortsFront) {
  std::mt19937 generator(9);
  for (int round = 0; round < 60; ++round) {
    const int count = 1 + static_cast<int>(generator() % 3000);
    auto scores = random_floats(count, generator());
    for (float& x : scores) {
      if (round % 4 == 1) x = std::round(x * 2);                                         // many ties, both zeros
      if (round % 4 == 2) x = std::bit_cast<float>(static_cast<uint32_t>(generator()));  // any bits
      if (round % 4 == 3) x = generator() % 2 == 0 ? 1.0f : 1.0f + 0x1p-23f * static_cast<float>(generator() % 3);
    }
    for (int k : {1, 2, 7, count / 2, count - 1, count, count + 5}) {
      if (k > 0) ASSERT_EQ(top(scores, k), sorted_top(scores, k)) << "round " << round << " k " << k;
    }
  }
}

TEST(SelectTopK, TiesGoToTheLowerPosition) {
  EXPECT_EQ(top({1, 2, 2, 2, 0}, 2), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(top({-0.0f, 0.0f, -0.0f, 0.0f}, 2), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(top({5, -1, 5, 7, 5}, 3), (std::vector<int32_t>{0, 2, 3}));
  const float nan = std::nanf("");
  EXPECT_EQ(top({nan, -HUGE_VALF, nan, 3}, 2), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(top({nan, nan, nan}, 2), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(top({}, 3), (std::vector<int32_t>{}));
}

struct Chosen {
  std::vector<int32_t> positions, counts;
  bool operator==(const Chosen&) const = default;
};

Chosen choose(const Sequence& s, const RunOptions& options, int k, int64_t max_positions) {
  Chosen chosen = {.positions = std::vector<int32_t>(s.shape.tokens * k, -1),
                   .counts = std::vector<int32_t>(s.shape.tokens, -1)};
  std::vector<std::byte> scratch(index_select_scratch_bytes(s.shape.dim, max_positions, options.threads));
  for_chunks(s, options, [&](const TokenCache& cache, const SequenceSlice& slice, ComputePool& pool) {
    index_select({.indexer = args_of(s, cache, slice.context_len, options.isa),
                  .top_k = k,
                  .selected = chosen.positions.data() + slice.context_len * k,
                  .selected_stride = k,
                  .selected_count = chosen.counts.data() + slice.context_len},
                 {&slice, 1}, max_positions, scratch, pool);
  });
  return chosen;
}

TEST_P(Shapes, SelectsTheSameForAnyStep) {
  const Sequence s(GetParam());
  const int k = 64;
  const auto scores = score(s, {});
  const Chosen want = choose(s, {}, k, s.shape.tokens);
  for (int64_t row = 0; row < s.shape.tokens; ++row) {
    const auto from = scores.begin() + row * s.shape.tokens;
    const auto expected = sorted_top({from, from + row + 1}, k);
    ASSERT_EQ(want.counts[row], static_cast<int32_t>(expected.size()));
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), want.positions.begin() + row * k)) << "row " << row;
  }
  for (int64_t chunk : {1, 17, 90}) {
    for (int threads : {1, 3}) {
      // A long model bounds the group of rows whose scores are held at once.
      for (int64_t max_positions : {s.shape.tokens, int64_t{1} << 20}) {
        EXPECT_TRUE(choose(s, {.chunk = chunk, .threads = threads}, k, max_positions) == want)
            << "chunk " << chunk << " threads " << threads << " length " << max_positions;
      }
    }
  }
}

TEST(Indexer, LongContextIsCutIntoChunks) {
  const Shape shape = {.heads = 3, .dim = 16, .tokens = 5000, .dtype = DType::kI8};
  const Sequence s(shape);
  const int64_t first = shape.tokens - 20;
  const auto want = score(s, {.first_row = first});
  const auto keys = stored(s);
  for (int64_t t = 0; t < shape.tokens - 1; t += 37) {
    float ordered = 0;
    for (int h = 0; h < shape.heads; ++h) {
      float chain = 0;
      const float* q = s.q.data() + ((shape.tokens - 1) * shape.heads + h) * shape.dim;
      for (int d = 0; d < shape.dim; ++d) chain = std::fma(q[d], keys[t * shape.dim + d], chain);
      ordered = std::fma(s.w[(shape.tokens - 1) * shape.heads + h], std::max(0.0f, chain), ordered);
    }
    EXPECT_EQ(want[19 * shape.tokens + t], ordered) << t;
  }
  for (int threads : {2, 4}) {
    EXPECT_TRUE(same_bits(score(s, {.chunk = 1, .first_row = first, .block_size = 768, .threads = threads}), want));
    EXPECT_TRUE(same_bits(score(s, {.chunk = 9, .first_row = first, .threads = threads}), want));
  }
}

// Several sequences in one step, as against each alone.
TEST(Indexer, SequencesOfAStepDoNotMeet) {
  struct Part {
    int64_t context;
    int rows;
  };
  const std::vector<Part> parts = {{0, 40}, {900, 1}, {5, 0}, {60, 70}, {30, 1}, {1200, 2}};
  const Shape base = {.heads = 4, .dim = 32, .dtype = DType::kF8E4M3};
  const int k = 48;
  std::vector<Sequence> sequences;
  std::vector<float> q, w;
  std::vector<std::vector<int32_t>> want;
  std::vector<std::vector<int32_t>> tables;
  int32_t next_block = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    Shape shape = base;
    shape.tokens = parts[i].context + parts[i].rows;
    const Sequence& s = sequences.emplace_back(shape, static_cast<unsigned>(10 * i + 1));
    const Chosen alone = choose(s, {.first_row = parts[i].context}, k, 2000);
    for (int64_t row = parts[i].context; row < shape.tokens; ++row) {
      const auto from = alone.positions.begin() + row * k;
      want.emplace_back(from, from + alone.counts[row]);
    }
    q.insert(q.end(), s.q.begin() + parts[i].context * base.heads * base.dim, s.q.end());
    w.insert(w.end(), s.w.begin() + parts[i].context * base.heads, s.w.end());
    auto& table = tables.emplace_back();
    for (int64_t t = 0; t < shape.tokens; t += 16) table.push_back(next_block++);
  }
  TokenCache cache(base.entry(), int64_t{next_block} * 16, 16);
  for (int threads : {1, 3}) {
    ComputePool pool({.threads = threads, .spin_us = 0});
    std::vector<SequenceSlice> slices;
    int rows = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Sequence& s = sequences[i];
      const SequenceSlice whole = {.block_table = tables[i].data(), .row_count = static_cast<int>(s.shape.tokens)};
      write_index_keys(cache.view, {&whole, 1}, s.keys.data(), base.dim, tensor::detect_isa(), pool);
      slices.push_back({.block_table = tables[i].data(),
                        .context_len = parts[i].context,
                        .row_begin = rows,
                        .row_count = parts[i].rows});
      rows += parts[i].rows;
    }
    for (int64_t max_positions : {int64_t{2000}, int64_t{1} << 21}) {
      std::vector<int32_t> positions(rows * k), counts(rows);
      std::vector<std::byte> scratch(index_select_scratch_bytes(base.dim, max_positions, threads));
      index_select({.indexer = {.cache = cache.view,
                                .heads = base.heads,
                                .q = q.data(),
                                .q_stride = int64_t{base.heads} * base.dim,
                                .weights = w.data(),
                                .weights_stride = base.heads,
                                .isa = tensor::detect_isa()},
                    .top_k = k,
                    .selected = positions.data(),
                    .selected_stride = k,
                    .selected_count = counts.data()},
                   slices, max_positions, scratch, pool);
      for (int row = 0; row < rows; ++row) {
        const auto from = positions.begin() + row * k;
        ASSERT_EQ((std::vector<int32_t>(from, from + counts[row])), want[row]) << "row " << row;
      }
    }
  }
}

// Pooled keys: by the formula in double, the whole choice of every row, and the same for any step and Isa.
struct PooledCase {
  int pool, dim, top_k;
  DType dtype;
};
class Pooled : public testing::TestWithParam<PooledCase> {};
INSTANTIATE_TEST_SUITE_P(Indexer, Pooled,
                         testing::Values(PooledCase{4, 32, 64, DType::kBF16}, PooledCase{2, 24, 30, DType::kF32},
                                         PooledCase{16, 16, 48, DType::kF16}, PooledCase{4, 128, 32, DType::kI8}));

TEST_P(Pooled, ChoosesTheBestPoolsAndTheTail) {
  const auto [pool, dim, top_k, dtype] = GetParam();
  Shape shape = {.heads = 9, .dim = 2 * dim, .tokens = 331, .dtype = dtype};
  const Sequence s(shape);
  const auto q = random_floats(shape.tokens * shape.heads * dim, 31);
  const auto bias = random_floats(pool * dim, 32);
  const auto cached = stored(s);
  const int64_t stride = top_k + pool - 1;
  const auto run = [&](const RunOptions& options) {
    Chosen chosen = {.positions = std::vector<int32_t>(shape.tokens * stride, -1),
                     .counts = std::vector<int32_t>(shape.tokens, -1)};
    std::vector<std::byte> scratch(index_select_scratch_bytes(shape.dim, shape.tokens, options.threads));
    for_chunks(s, options, [&](const TokenCache& cache, const SequenceSlice& slice, ComputePool& threads) {
      IndexerArgs args = args_of(s, cache, slice.context_len, options.isa);
      args.q = q.data() + slice.context_len * shape.heads * dim;
      args.q_stride = int64_t{shape.heads} * dim;
      args.pool = pool;
      args.pool_bias = bias.data();
      index_select({.indexer = args,
                    .top_k = top_k,
                    .selected = chosen.positions.data() + slice.context_len * stride,
                    .selected_stride = stride,
                    .selected_count = chosen.counts.data() + slice.context_len},
                   {&slice, 1}, shape.tokens, scratch, threads);
    });
    return chosen;
  };
  const Chosen got = run({});
  std::vector<double> keys;  // [pools][dim]
  for (int64_t j = 0; j < shape.tokens / pool; ++j) {
    for (int d = 0; d < dim; ++d) {
      double sum = 0, key = 0;
      for (int m = 0; m < pool; ++m) {
        const float* token = cached.data() + (j * pool + m) * shape.dim;
        const double weight = std::exp(double{token[dim + d]} + bias[m * dim + d]);
        sum += weight;
        key += weight * token[d];
      }
      keys.push_back(key / sum);
    }
  }
  for (int64_t row = 0; row < shape.tokens; ++row) {
    const int64_t pools = (row + 1) / pool;
    std::vector<float> scores;
    for (int64_t j = 0; j < pools; ++j) {
      double score = 0;
      for (int h = 0; h < shape.heads; ++h) {
        double dot = 0;
        for (int d = 0; d < dim; ++d) dot += q[(row * shape.heads + h) * dim + d] * keys[j * dim + d];
        score += s.w[row * shape.heads + h] * std::max(0.0, dot);
      }
      scores.push_back(static_cast<float>(score));
    }
    std::vector<int32_t> want;
    for (int32_t j : sorted_top(scores, top_k / pool)) {
      for (int m = 0; m < pool; ++m) want.push_back(j * pool + m);
    }
    for (int64_t t = pools * pool; t <= row; ++t) want.push_back(static_cast<int32_t>(t));
    const auto from = got.positions.begin() + row * stride;
    ASSERT_EQ((std::vector<int32_t>(from, from + got.counts[row])), want) << "row " << row;
  }
  for (int64_t chunk : {1, 3, 50}) EXPECT_TRUE(run({.chunk = chunk, .block_size = 48}) == got) << "chunk " << chunk;
  for (int threads : {2, 4}) EXPECT_TRUE(run({.chunk = 70, .threads = threads}) == got) << "threads " << threads;
  for (Isa isa : isas()) EXPECT_TRUE(run({.isa = isa}) == got) << isa_name(isa);
}

}  // namespace
}  // namespace baton::kernels
