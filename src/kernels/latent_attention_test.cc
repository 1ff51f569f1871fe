// Latent attention: against plain (non-absorbed) MLA in double, against its stated order one operation at a time, and
// bit-equal whatever the step, blocks, threads, Isa and form.
#include "kernels/latent_attention.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kernels/attention.h"
#include "kernels/latent_test_data.h"
#include "kernels/math.h"

namespace baton::kernels {
namespace {

using namespace test;

struct Shape {
  int heads = 5, rank = 64, rope = 16;
  int64_t tokens = 200;
  DType dtype = DType::kBF16;
  int dims() const { return rank + rope; }
  PagedEntry entry() const { return {.kind = PagedKind::kLatent, .dim = rank, .rope_dim = rope, .dtype = dtype}; }
  float scale() const { return 1.5f / std::sqrt(static_cast<float>(dims())); }
};

struct Sequence {
  Shape shape;
  std::vector<float> q, latent, rope_key;
  explicit Sequence(Shape s, unsigned seed = 1) : shape(s) {
    q = random_floats(s.tokens * s.heads * s.dims(), seed);
    latent = random_floats(s.tokens * s.rank, seed + 1);
    rope_key = random_floats(s.tokens * s.rope + 1, seed + 2);
  }
};

struct Selection {
  int64_t stride = 0;
  std::vector<int32_t> positions, counts;
};

struct RunOptions {
  int64_t chunk = 1 << 30;
  int64_t first_row = 0;
  int block_size = 16;
  int threads = 1;
  Isa isa = tensor::detect_isa();
  const Selection* selection = nullptr;  // of all positions' rows
};

std::vector<float> attend(const Sequence& s, const RunOptions& options) {
  const Shape& shape = s.shape;
  const int64_t q_row = int64_t{shape.heads} * shape.dims(), out_row = int64_t{shape.heads} * shape.rank;
  TokenCache cache(shape.entry(), shape.tokens, options.block_size);
  ComputePool pool({.threads = options.threads, .spin_us = 0});
  std::vector<std::byte> scratch(latent_attention_scratch_bytes(shape.heads, shape.rank, shape.rope, options.threads));
  std::vector<float> out(shape.tokens * out_row, -1e9f);
  for (int64_t begin = 0; begin < shape.tokens;) {
    const int64_t limit = begin < options.first_row ? options.first_row : begin + options.chunk;
    const int64_t end = std::min(shape.tokens, limit);
    const SequenceSlice slice = {
        .block_table = cache.table.data(), .context_len = begin, .row_count = static_cast<int>(end - begin)};
    write_latents(cache.view, {&slice, 1}, s.latent.data() + begin * shape.rank, shape.rank,
                  s.rope_key.data() + begin * shape.rope, shape.rope, options.isa, pool);
    if (begin >= options.first_row) {
      LatentAttentionArgs args = {.cache = cache.view,
                                  .heads = shape.heads,
                                  .scale = shape.scale(),
                                  .q = s.q.data() + begin * q_row,
                                  .q_stride = q_row,
                                  .out = out.data() + begin * out_row,
                                  .out_stride = out_row,
                                  .isa = options.isa};
      if (options.selection != nullptr) {
        args.selected = options.selection->positions.data() + begin * options.selection->stride;
        args.selected_stride = options.selection->stride;
        args.selected_count = options.selection->counts.data() + begin;
      }
      latent_attention(args, {&slice, 1}, scratch, pool);
    }
    begin = end;
  }
  return {out.begin() + options.first_row * out_row, out.end()};
}

// What a reader of the cache finds: [tokens][dims].
std::vector<float> stored(const Sequence& s) {
  const Shape& shape = s.shape;
  TokenCache cache(shape.entry(), shape.tokens, 16);
  ComputePool pool({.threads = 1, .spin_us = 0});
  const SequenceSlice slice = {.block_table = cache.table.data(), .row_count = static_cast<int>(shape.tokens)};
  write_latents(cache.view, {&slice, 1}, s.latent.data(), shape.rank, s.rope_key.data(), shape.rope, Isa::kPortable,
                pool);
  std::vector<float> values;
  for (int64_t t = 0; t < shape.tokens; ++t) {
    const auto token = read_token(shape.entry(), cache.token(t));
    values.insert(values.end(), token.begin(), token.end());
  }
  return values;
}

std::vector<int32_t> row_positions(int64_t row, const Selection* selection) {
  if (selection != nullptr) {
    const auto from = selection->positions.begin() + row * selection->stride;
    return {from, from + selection->counts[row]};
  }
  std::vector<int32_t> all(row + 1);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Softmax in double over the cache as stored.
std::vector<double> reference(const Sequence& s, int64_t first_row, const Selection* selection = nullptr) {
  const Shape& shape = s.shape;
  const auto cache = stored(s);
  std::vector<double> out;
  for (int64_t row = first_row; row < shape.tokens; ++row) {
    const auto positions = row_positions(row, selection);
    for (int h = 0; h < shape.heads; ++h) {
      const float* q = s.q.data() + (row * shape.heads + h) * shape.dims();
      std::vector<double> weight;
      for (int64_t t : positions) {
        double dot = 0;
        for (int d = 0; d < shape.dims(); ++d) dot += double{q[d]} * cache[t * shape.dims() + d];
        weight.push_back(dot * shape.scale());
      }
      const double top = *std::max_element(weight.begin(), weight.end());
      double sum = 0;
      for (double& w : weight) sum += w = std::exp(w - top);
      for (int d = 0; d < shape.rank; ++d) {
        double o = 0;
        for (size_t i = 0; i < positions.size(); ++i) o += weight[i] * cache[positions[i] * shape.dims() + d];
        out.push_back(o / sum);
      }
    }
  }
  return out;
}

double worst_error(const std::vector<float>& got, const std::vector<double>& want) {
  EXPECT_EQ(got.size(), want.size());
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - want[i]);
    worst = std::isnan(error) ? 1e9 : std::max(worst, error);
  }
  return worst;
}

// Weights sum to one and stored values stay below 6: fp32 rounding of a few hundred terms, and of scores of 600 terms.
constexpr double kBound = 1e-5;

class Shapes : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Latent, Shapes,
                         testing::Values(Shape{5, 64, 16, 200, DType::kBF16}, Shape{16, 128, 64, 131, DType::kF8E4M3},
                                         Shape{8, 256, 32, 140, DType::kI8}, Shape{3, 32, 8, 260, DType::kF16},
                                         Shape{70, 32, 16, 130, DType::kBF16}, Shape{2, 48, 0, 135, DType::kF32},
                                         Shape{130, 16, 4, 20, DType::kI8}, Shape{4, 200, 24, 129, DType::kF8E4M3}));

TEST_P(Shapes, MatchesSoftmaxInDouble) {
  const Sequence s(GetParam());
  const auto want = reference(s, 0);
  EXPECT_LT(worst_error(attend(s, {}), want), kBound);
}

TEST_P(Shapes, SameBitsForAnyStepBlocksThreadsAndIsa) {
  const Sequence s(GetParam());
  const auto want = attend(s, {});
  for (int64_t chunk : {1, 3, 100}) EXPECT_TRUE(same_bits(attend(s, {.chunk = chunk}), want)) << "chunk " << chunk;
  for (int block_size : {7, 16, 128, 768}) {
    EXPECT_TRUE(same_bits(attend(s, {.chunk = 50, .block_size = block_size}), want)) << "block size " << block_size;
  }
  const int64_t late = s.shape.tokens / 2;
  const auto want_late = attend(s, {.first_row = late});
  for (int threads : {2, 3, 4}) {
    EXPECT_TRUE(same_bits(attend(s, {.threads = threads}), want)) << "threads " << threads;
    EXPECT_TRUE(same_bits(attend(s, {.chunk = 1, .first_row = late, .threads = threads}), want_late))
        << "decode, threads " << threads;
  }
  for (Isa isa : isas()) {
    EXPECT_TRUE(same_bits(attend(s, {.first_row = late, .isa = isa}), want_late)) << isa_name(isa);
  }
}

TEST(Latent, AbsorbedFormMatchesPlainMla) {
  // Plain MLA: keys and values are made per head from the latent, then ordinary attention. All in double.
  const Shape shape = {.heads = 4, .rank = 96, .rope = 16, .tokens = 150};
  const int nope = 32, value = 24;
  Sequence s(shape);
  const auto w_uk = random_floats(shape.heads * nope * shape.rank, 20);   // [heads][nope][rank]
  const auto w_uv = random_floats(shape.heads * value * shape.rank, 21);  // [heads][value][rank]
  const auto q_nope = random_floats(shape.tokens * shape.heads * nope, 22);
  const double shrink = 1.0 / std::sqrt(static_cast<double>(shape.rank));
  for (int64_t i = 0; i < shape.tokens * shape.heads; ++i) {
    for (int r = 0; r < shape.rank; ++r) {
      double absorbed = 0;
      for (int n = 0; n < nope; ++n) {
        absorbed += double{q_nope[i * nope + n]} * w_uk[(i % shape.heads * nope + n) * shape.rank + r] * shrink;
      }
      s.q[i * shape.dims() + r] = static_cast<float>(absorbed);
    }
  }
  const auto cache = stored(s);
  const auto got = attend(s, {});
  double worst = 0;
  for (int64_t row = 0; row < shape.tokens; row += 7) {
    for (int h = 0; h < shape.heads; ++h) {
      std::vector<double> weight(row + 1);
      for (int64_t t = 0; t <= row; ++t) {
        const float* latent = cache.data() + t * shape.dims();
        for (int n = 0; n < nope; ++n) {
          double key = 0;
          for (int r = 0; r < shape.rank; ++r) key += w_uk[(h * nope + n) * shape.rank + r] * shrink * latent[r];
          weight[t] += q_nope[(row * shape.heads + h) * nope + n] * key;
        }
        for (int d = 0; d < shape.rope; ++d) {
          weight[t] += double{s.q[(row * shape.heads + h) * shape.dims() + shape.rank + d]} * latent[shape.rank + d];
        }
        weight[t] *= shape.scale();
      }
      const double top = *std::max_element(weight.begin(), weight.end());
      double sum = 0;
      for (double& w : weight) sum += w = std::exp(w - top);
      for (int v = 0; v < value; ++v) {
        double plain = 0, absorbed = 0;
        for (int r = 0; r < shape.rank; ++r) {
          const double up = w_uv[(h * value + v) * shape.rank + r] * shrink;
          double mean = 0;
          for (int64_t t = 0; t <= row; ++t) mean += weight[t] / sum * cache[t * shape.dims() + r];
          plain += up * mean;
          absorbed += up * got[(row * shape.heads + h) * shape.rank + r];
        }
        worst = std::max(worst, std::abs(plain - absorbed));
      }
    }
  }
  EXPECT_LT(worst, 2e-5);
}

// The order that attention_ops.h states, one operation at a time.
struct Lane {
  float m = -HUGE_VALF, sum = 0;
  std::vector<float> o;
};

float exp_one(float x) {
  float y;
  exp_exact(&x, &y, 1, Isa::kPortable);
  return y;
}

void visit_tile(const Shape& shape, const float* q, const std::vector<float>& cache, std::vector<int32_t> positions,
                Lane& lane) {
  std::vector<float> score;
  for (int32_t t : positions) {
    float s = 0;
    for (int d = 0; d < shape.dims(); ++d) s = std::fma(q[d] * shape.scale(), cache[t * shape.dims() + d], s);
    score.push_back(s);
  }
  const float m = std::max(lane.m, *std::max_element(score.begin(), score.end()));
  const float alpha = exp_one(lane.m - m);
  float partial[16] = {};
  for (float& o : lane.o) o = o * alpha;
  for (size_t i = 0; i < positions.size(); ++i) {
    const float w = exp_one(score[i] - m);
    partial[i % 16] += w;
    for (int d = 0; d < shape.rank; ++d) lane.o[d] = std::fma(w, cache[positions[i] * shape.dims() + d], lane.o[d]);
  }
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) partial[i] += partial[i + half];
  }
  lane.sum = std::fma(lane.sum, alpha, partial[0]);
  lane.m = m;
}

void merge_lanes(Lane& a, const Lane& b) {
  if (b.m == -HUGE_VALF) return;
  if (a.m == -HUGE_VALF) {
    a = b;
    return;
  }
  const float m = std::max(a.m, b.m), ea = exp_one(a.m - m), eb = exp_one(b.m - m);
  a.sum = std::fma(b.sum, eb, a.sum * ea);
  for (size_t d = 0; d < a.o.size(); ++d) a.o[d] = std::fma(b.o[d], eb, a.o[d] * ea);
  a.m = m;
}

std::vector<float> by_hand(const Sequence& s, int64_t row, int head, const Selection* selection) {
  const Shape& shape = s.shape;
  const auto cache = stored(s);
  std::vector<std::vector<int32_t>> of_lane(16);
  for (int32_t t : row_positions(row, selection)) of_lane[t / 768 % 16].push_back(t);
  std::vector<Lane> lanes(16);
  for (int i = 0; i < 16; ++i) {
    lanes[i].o.assign(shape.rank, 0.0f);
    const auto& list = of_lane[i];
    for (size_t at = 0; at < list.size(); at += 128) {
      visit_tile(shape, s.q.data() + (row * shape.heads + head) * shape.dims(), cache,
                 {list.begin() + at, list.begin() + std::min(list.size(), at + 128)}, lanes[i]);
    }
  }
  for (int step = 1; step < 16; step *= 2) {
    for (int i = 0; i < 16; i += 2 * step) merge_lanes(lanes[i], lanes[i + step]);
  }
  for (float& o : lanes[0].o) o = o / lanes[0].sum;
  return lanes[0].o;
}

// Every third position or so, some rows only far ones, some only their own.
Selection some_positions(int64_t tokens, unsigned seed) {
  Selection selection = {.stride = tokens, .positions = std::vector<int32_t>(tokens * tokens)};
  std::mt19937 generator(seed);
  for (int64_t row = 0; row < tokens; ++row) {
    int32_t* to = selection.positions.data() + row * tokens;
    int32_t count = 0;
    for (int64_t t = 0; t <= row; ++t) {
      const bool keep = row % 4 == 1 ? t == row : row % 4 == 2 ? t <= row / 3 : generator() % 3 == 0;
      if (keep || (t == row && count == 0)) to[count++] = static_cast<int32_t>(t);
    }
    selection.counts.push_back(count);
  }
  return selection;
}

Selection all_positions(int64_t tokens) {
  Selection selection = {.stride = tokens, .positions = std::vector<int32_t>(tokens * tokens)};
  for (int64_t row = 0; row < tokens; ++row) {
    std::iota(selection.positions.begin() + row * tokens, selection.positions.begin() + row * tokens + row + 1, 0);
    selection.counts.push_back(static_cast<int32_t>(row + 1));
  }
  return selection;
}

TEST(Latent, KeepsItsStatedOrder) {
  for (DType dtype : {DType::kBF16, DType::kF8E4M3}) {
    const Shape shape = {.heads = 2, .rank = 32, .rope = 8, .tokens = 2500, .dtype = dtype};
    const Sequence s(shape);
    const int64_t first = shape.tokens - 3;
    const auto selection = some_positions(shape.tokens, 8);
    for (const Selection* form : {static_cast<const Selection*>(nullptr), &selection}) {
      for (Isa isa : isas()) {
        const auto got = attend(s, {.first_row = first, .isa = isa, .selection = form});
        for (int64_t row = first; row < shape.tokens; ++row) {
          for (int h = 0; h < shape.heads; ++h) {
            const auto from = got.begin() + ((row - first) * shape.heads + h) * shape.rank;
            EXPECT_TRUE(same_bits({from, from + shape.rank}, by_hand(s, row, h, form)))
                << isa_name(isa) << " row " << row << " head " << h << (form != nullptr ? " sparse" : " dense");
          }
        }
      }
    }
  }
}

TEST_P(Shapes, AllSelectedIsDense) {
  const Sequence s(GetParam());
  const auto want = attend(s, {});
  const auto all = all_positions(s.shape.tokens);
  for (int threads : {1, 3}) {
    EXPECT_TRUE(same_bits(attend(s, {.threads = threads, .selection = &all}), want)) << "threads " << threads;
    EXPECT_TRUE(same_bits(attend(s, {.chunk = 9, .threads = threads, .selection = &all}), want));
  }
}

TEST_P(Shapes, SparseMatchesDoubleAndIsTheSameForAnyStep) {
  const Sequence s(GetParam());
  const auto some = some_positions(s.shape.tokens, 4);
  const auto want = attend(s, {.selection = &some});
  EXPECT_LT(worst_error(want, reference(s, 0, &some)), kBound);
  for (int64_t chunk : {1, 33}) {
    for (int threads : {1, 2, 4}) {
      const RunOptions options = {.chunk = chunk, .block_size = 48, .threads = threads, .selection = &some};
      EXPECT_TRUE(same_bits(attend(s, options), want)) << "chunk " << chunk << " threads " << threads;
    }
  }
}

// Rows whose context fills several lanes, and more than 16 spans, so that lane 0 is entered again.
class LongContext : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Latent, LongContext, testing::Values(768, 769, 5000, 12288, 13200));

TEST_P(LongContext, LanesMergeTheSameWay) {
  const Shape shape = {.heads = 3, .rank = 32, .rope = 8, .tokens = GetParam(), .dtype = DType::kI8};
  const Sequence s(shape);
  const int64_t first = shape.tokens - 7;
  const auto want = attend(s, {.first_row = first});
  EXPECT_LT(worst_error(want, reference(s, first)), kBound);
  for (int64_t chunk : {1, 2, 5}) {
    for (int threads : {1, 2, 4}) {
      const RunOptions options = {.chunk = chunk, .first_row = first, .block_size = 48, .threads = threads};
      EXPECT_TRUE(same_bits(attend(s, options), want)) << "chunk " << chunk << " threads " << threads;
    }
  }
  for (int block_size : {16, 128, 768}) {
    EXPECT_TRUE(same_bits(attend(s, {.first_row = first, .block_size = block_size}), want)) << block_size;
  }
}

// Several sequences in one step, prompt chunks and single tokens mixed, as against each alone.
TEST(Latent, SequencesOfAStepDoNotMeet) {
  struct Part {
    int64_t context;
    int rows;
  };
  const std::vector<Part> parts = {{0, 70}, {1700, 1}, {5, 0}, {129, 30}, {40, 1}, {3000, 2}};
  const Shape base = {.heads = 20, .rank = 64, .rope = 16, .dtype = DType::kF8E4M3};
  const int64_t q_row = base.heads * base.dims(), out_row = base.heads * base.rank;
  std::vector<Sequence> sequences;
  std::vector<float> q, want;
  for (size_t i = 0; i < parts.size(); ++i) {
    Shape shape = base;
    shape.tokens = parts[i].context + parts[i].rows;
    const Sequence& s = sequences.emplace_back(shape, static_cast<unsigned>(10 * i + 1));
    if (parts[i].rows > 0) {
      const auto alone = attend(s, {.first_row = parts[i].context});
      want.insert(want.end(), alone.begin(), alone.end());
    }
    q.insert(q.end(), s.q.begin() + parts[i].context * q_row, s.q.end());
  }
  for (int threads : {1, 2, 4, 16}) {
    ComputePool pool({.threads = threads, .spin_us = 0});
    std::vector<std::byte> scratch(latent_attention_scratch_bytes(base.heads, base.rank, base.rope, threads));
    std::vector<std::vector<int32_t>> tables;
    std::vector<SequenceSlice> slices;
    int32_t next_block = 0;
    int rows = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      auto& table = tables.emplace_back();
      for (int64_t t = 0; t < sequences[i].shape.tokens; t += 16) table.push_back(next_block++);
    }
    TokenCache cache(base.entry(), int64_t{next_block} * 16, 16);
    for (size_t i = 0; i < parts.size(); ++i) {
      const Sequence& s = sequences[i];
      const SequenceSlice whole = {.block_table = tables[i].data(), .row_count = static_cast<int>(s.shape.tokens)};
      write_latents(cache.view, {&whole, 1}, s.latent.data(), base.rank, s.rope_key.data(), base.rope,
                    tensor::detect_isa(), pool);
      slices.push_back({.block_table = tables[i].data(),
                        .context_len = parts[i].context,
                        .row_begin = rows,
                        .row_count = parts[i].rows});
      rows += parts[i].rows;
    }
    std::vector<float> out(rows * out_row);
    latent_attention({.cache = cache.view,
                      .heads = base.heads,
                      .scale = base.scale(),
                      .q = q.data(),
                      .q_stride = q_row,
                      .out = out.data(),
                      .out_stride = out_row,
                      .isa = tensor::detect_isa()},
                     slices, scratch, pool);
    EXPECT_TRUE(same_bits(out, want)) << "threads " << threads;
  }
}

// Packed caches against fp32 ones: the error of the output, relative to its size.
TEST(Latent, PackedCachesStayNearTheUnrounded) {
  const Shape shape = {.heads = 16, .rank = 512, .rope = 64, .tokens = 300, .dtype = DType::kF32};
  Sequence s(shape);
  const auto exact = attend(s, {.first_row = 290});
  const auto error = [&](DType dtype) {
    s.shape.dtype = dtype;
    const auto got = attend(s, {.first_row = 290});
    double difference = 0, size = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      difference += (got[i] - exact[i]) * (got[i] - exact[i]);
      size += exact[i] * exact[i];
    }
    return std::sqrt(difference / size);
  };
  EXPECT_LT(error(DType::kF16), 1e-3);
  EXPECT_LT(error(DType::kBF16), 6e-3);
  EXPECT_LT(error(DType::kI8), 3e-2);
  EXPECT_LT(error(DType::kF8E4M3), 6e-2);
}

}  // namespace
}  // namespace baton::kernels
