// Paged attention: against a plain softmax in double, and bit-equal whatever the step, blocks, threads and Isa.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tensor/float_convert.h"

namespace baton::kernels {
namespace {

using tensor::DType;
using tensor::Isa;

std::vector<Isa> isas() {
  std::vector<Isa> list = {Isa::kPortable};
  if (tensor::detect_isa() >= Isa::kAvx2) list.push_back(Isa::kAvx2);
  if (tensor::detect_isa() >= Isa::kAvx512) list.push_back(Isa::kAvx512);
  return list;
}

std::vector<float> random_floats(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& v : values) v = normal(generator);
  return values;
}

float rounded(float v, DType dtype) {
  if (dtype == DType::kBF16) return tensor::bf16_to_float(tensor::float_to_bf16(v));
  if (dtype == DType::kF16) return tensor::f16_to_float(tensor::float_to_f16(v));
  return v;
}

bool is_code(DType dtype) { return dtype == DType::kF8E4M3 || dtype == DType::kI8; }

float scale_of(const float* row, int count, DType dtype) {
  float largest = 0;
  for (int i = 0; i < count; ++i) largest = std::max(largest, std::abs(row[i]));
  return std::max(largest / (dtype == DType::kI8 ? 127.0f : 448.0f), 0x1p-126f);
}

uint8_t code_of(float ratio, DType dtype) {
  if (dtype == DType::kF8E4M3) return tensor::float_to_e4m3(ratio);
  return static_cast<uint8_t>(static_cast<int8_t>(std::nearbyint(std::clamp(ratio, -127.0f, 127.0f))));
}

float value_of(uint8_t code, DType dtype) {
  return dtype == DType::kF8E4M3 ? tensor::e4m3_to_float(code) : static_cast<float>(static_cast<int8_t>(code));
}

struct Shape {
  int heads = 3, kv_heads = 1, head_dim = 64;
  int64_t tokens = 300;
  DType dtype = DType::kBF16;
};

// One sequence's q, k, v for all its positions.
struct Sequence {
  Shape shape;
  std::vector<float> q, k, v;
  explicit Sequence(Shape s, unsigned seed = 1) : shape(s) {
    q = random_floats(s.tokens * s.heads * s.head_dim, seed);
    k = random_floats(s.tokens * s.kv_heads * s.head_dim, seed + 1);
    v = random_floats(s.tokens * s.kv_heads * s.head_dim, seed + 2);
  }
  float scale() const { return 1.5f / std::sqrt(static_cast<float>(shape.head_dim)); }
};

// A cache of two layers with shuffled blocks; bytes that no token fills are NaN.
struct Cache {
  std::vector<std::byte> bytes;
  std::vector<int32_t> table;
  PagedKvView view;
  Cache(const Shape& shape, int block_size) {
    const int64_t blocks = (shape.tokens + block_size - 1) / block_size;
    const int64_t head = block_size * entry_token_bytes({.dim = shape.head_dim, .dtype = shape.dtype});
    view.dtype = shape.dtype;
    view.block_size = block_size;
    view.kv_heads = shape.kv_heads;
    view.head_dim = shape.head_dim;
    view.head_stride = head;
    view.kv_stride = head * shape.kv_heads;
    view.layer_stride = 2 * view.kv_stride;
    view.block_stride = 2 * view.layer_stride;
    bytes.assign(view.block_stride * (blocks + 1), std::byte{0xff});
    view.base = bytes.data();
    for (int64_t i = 0; i < blocks; ++i) table.push_back(static_cast<int32_t>(i + 1));
    std::shuffle(table.begin(), table.end(), std::mt19937(5));
  }
};

struct RunOptions {
  int64_t chunk = 1 << 30;
  int64_t first_row = 0;  // rows before it are written to the cache but not attended
  int block_size = 16;
  int threads = 1;
  Isa isa = tensor::detect_isa();
};

// The outputs of all rows from first_row on, computed chunk by chunk.
std::vector<float> attend(const Sequence& s, const RunOptions& options) {
  const Shape& shape = s.shape;
  const int64_t q_row = shape.heads * shape.head_dim, kv_row = shape.kv_heads * shape.head_dim;
  Cache cache(shape, options.block_size);
  ComputePool pool({.threads = options.threads, .spin_us = 0});
  std::vector<std::byte> scratch(attention_scratch_bytes(shape.heads, shape.kv_heads, shape.head_dim, options.threads));
  std::vector<float> out(s.q.size(), -1e9f);
  for (int64_t begin = 0; begin < shape.tokens;) {
    const int64_t limit = begin < options.first_row ? options.first_row : begin + options.chunk;
    const int64_t end = std::min(shape.tokens, limit);
    const SequenceSlice slice = {.block_table = cache.table.data(),
                                 .context_len = begin,
                                 .row_begin = 0,
                                 .row_count = static_cast<int>(end - begin)};
    write_kv(cache.view, 1, {&slice, 1}, s.k.data() + begin * kv_row, kv_row, s.v.data() + begin * kv_row, kv_row,
             options.isa, pool);
    if (begin >= options.first_row) {
      paged_attention({.cache = cache.view,
                       .layer = 1,
                       .heads = shape.heads,
                       .scale = s.scale(),
                       .q = s.q.data() + begin * q_row,
                       .q_stride = q_row,
                       .out = out.data() + begin * q_row,
                       .out_stride = q_row,
                       .isa = options.isa},
                      {&slice, 1}, scratch, pool);
    }
    begin = end;
  }
  return {out.begin() + options.first_row * q_row, out.end()};
}

// What a reader of the cache finds of keys or values [tokens, kv_heads, head_dim].
std::vector<float> stored(std::vector<float> kv, const Shape& shape) {
  for (size_t at = 0; at < kv.size(); at += shape.head_dim) {
    float* row = kv.data() + at;
    const float scale = scale_of(row, shape.head_dim, shape.dtype);
    for (int d = 0; d < shape.head_dim; ++d) {
      row[d] = is_code(shape.dtype) ? value_of(code_of(row[d] / scale, shape.dtype), shape.dtype) * scale
                                    : rounded(row[d], shape.dtype);
    }
  }
  return kv;
}

// softmax(q k^T) v in double over the cache's rounded values.
std::vector<double> reference(const Sequence& s, int64_t first_row) {
  const Shape& shape = s.shape;
  const int64_t d_count = shape.head_dim, group = shape.heads / shape.kv_heads;
  const auto keys = stored(s.k, shape), values = stored(s.v, shape);
  std::vector<double> out;
  for (int64_t row = first_row; row < shape.tokens; ++row) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const float* q = s.q.data() + (row * shape.heads + h) * d_count;
      const auto at = [&](const std::vector<float>& kv, int64_t t, int64_t d) {
        return static_cast<double>(kv[(t * shape.kv_heads + h / group) * d_count + d]);
      };
      std::vector<double> weight(row + 1);
      for (int64_t t = 0; t <= row; ++t) {
        for (int64_t d = 0; d < d_count; ++d) weight[t] += q[d] * at(keys, t, d);
        weight[t] *= s.scale();
      }
      const double top = *std::max_element(weight.begin(), weight.end());
      double sum = 0;
      for (double& w : weight) sum += w = std::exp(w - top);
      for (int64_t d = 0; d < d_count; ++d) {
        double o = 0;
        for (int64_t t = 0; t <= row; ++t) o += weight[t] * at(values, t, d);
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

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Weights sum to one and |v| < 6, so that fp32 rounding of a few hundred terms stays below this.
constexpr double kBound = 5e-6;

class Shapes : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Attention, Shapes,
                         testing::Values(Shape{3, 1, 64, 300, DType::kBF16}, Shape{4, 2, 64, 130, DType::kF16},
                                         Shape{2, 2, 128, 257, DType::kF32}, Shape{9, 3, 80, 140, DType::kBF16},
                                         Shape{7, 1, 24, 129, DType::kF16}, Shape{2, 1, 5, 40, DType::kBF16},
                                         Shape{80, 1, 16, 20, DType::kF32}, Shape{9, 3, 64, 200, DType::kF8E4M3},
                                         Shape{4, 1, 128, 150, DType::kI8}, Shape{5, 5, 37, 140, DType::kF8E4M3},
                                         Shape{16, 2, 24, 131, DType::kI8}));

TEST_P(Shapes, MatchesSoftmaxInDouble) {
  const Sequence s(GetParam());
  const auto want = reference(s, 0);
  for (Isa isa : isas()) EXPECT_LT(worst_error(attend(s, {.isa = isa}), want), kBound) << isa_name(isa);
}

TEST_P(Shapes, SameBitsForAnyStepBlocksThreadsAndIsa) {
  const Sequence s(GetParam());
  const auto want = attend(s, {});
  for (int64_t chunk : {1, 3, 16, 100}) EXPECT_TRUE(same_bits(attend(s, {.chunk = chunk}), want)) << "chunk " << chunk;
  for (int block_size : {1, 7, 48, 128, 768}) {
    EXPECT_TRUE(same_bits(attend(s, {.chunk = 50, .block_size = block_size}), want)) << "block size " << block_size;
  }
  for (int threads : {2, 3}) {
    EXPECT_TRUE(same_bits(attend(s, {.threads = threads}), want)) << "threads " << threads;
    EXPECT_TRUE(same_bits(attend(s, {.chunk = 1, .threads = threads}), want)) << "decode, threads " << threads;
  }
  for (Isa isa : isas()) EXPECT_TRUE(same_bits(attend(s, {.isa = isa}), want)) << isa_name(isa);
}

// Rows whose context fills several lanes, and more than 16 spans, so that lane 0 is entered again.
class LongContext : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Attention, LongContext, testing::Values(768, 769, 1700, 5000, 12288, 12500, 13200));

TEST_P(LongContext, LanesMergeTheSameWay) {
  const Shape shape = {.heads = 2, .kv_heads = 1, .head_dim = 32, .tokens = GetParam(), .dtype = DType::kBF16};
  const Sequence s(shape);
  const int64_t first = shape.tokens - 9;
  const auto want = attend(s, {.first_row = first});
  EXPECT_LT(worst_error(want, reference(s, first)), kBound);
  for (int64_t chunk : {1, 2, 5}) {
    for (int threads : {1, 2, 3}) {
      const RunOptions options = {.chunk = chunk, .first_row = first, .block_size = 48, .threads = threads};
      EXPECT_TRUE(same_bits(attend(s, options), want)) << "chunk " << chunk << " threads " << threads;
    }
  }
  for (Isa isa : isas()) {
    EXPECT_TRUE(same_bits(attend(s, {.first_row = first, .block_size = 768, .isa = isa}), want)) << isa_name(isa);
  }
}

TEST(Attention, RowBlockAcrossSpansKeepsEmptyLanesOut) {
  const Shape shape = {.heads = 4, .kv_heads = 2, .head_dim = 16, .tokens = 800, .dtype = DType::kF32};
  const Sequence s(shape);
  const auto want = attend(s, {.chunk = 1, .first_row = 740});
  for (int64_t chunk : {7, 29, 60}) EXPECT_TRUE(same_bits(attend(s, {.chunk = chunk, .first_row = 740}), want));
  EXPECT_LT(worst_error(want, reference(s, 740)), kBound);
}

// Several sequences in one step, prompt chunks and single tokens mixed, as against each alone.
TEST(Attention, SequencesOfAStepDoNotMeet) {
  struct Part {
    int64_t context;
    int rows;
  };
  const std::vector<Part> parts = {{0, 70}, {1700, 1}, {5, 0}, {129, 30}, {40, 1}, {3000, 2}};
  const Shape base = {.heads = 6, .kv_heads = 2, .head_dim = 64, .dtype = DType::kBF16};
  const int64_t q_row = base.heads * base.head_dim;
  for (int threads : {1, 2, 3}) {
    ComputePool pool({.threads = threads, .spin_us = 0});
    std::vector<std::byte> scratch(attention_scratch_bytes(base.heads, base.kv_heads, base.head_dim, threads));
    std::vector<std::byte> arena;
    std::vector<std::vector<int32_t>> tables;
    std::vector<SequenceSlice> slices;
    std::vector<float> q, k, v, want;
    int32_t next_block = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      Shape shape = base;
      shape.tokens = parts[i].context + parts[i].rows;
      const Sequence s(shape, static_cast<unsigned>(10 * i + 1));
      if (parts[i].rows > 0) {
        const auto alone = attend(s, {.first_row = parts[i].context});
        want.insert(want.end(), alone.begin(), alone.end());
      }
      q.insert(q.end(), s.q.begin() + parts[i].context * q_row, s.q.end());
      k.insert(k.end(), s.k.begin(), s.k.end());
      v.insert(v.end(), s.v.begin(), s.v.end());
      auto& table = tables.emplace_back();
      for (int64_t t = 0; t < shape.tokens; t += 16) table.push_back(next_block++);
    }
    Shape all = base;
    all.tokens = next_block * 16;
    Cache cache(all, 16);
    int rows = 0;
    int64_t tokens = 0;
    const int64_t kv_row = base.kv_heads * base.head_dim;
    for (size_t i = 0; i < parts.size(); ++i) {
      const int64_t count = parts[i].context + parts[i].rows;
      const SequenceSlice whole = {.block_table = tables[i].data(), .row_count = static_cast<int>(count)};
      write_kv(cache.view, 0, {&whole, 1}, k.data() + tokens * kv_row, kv_row, v.data() + tokens * kv_row, kv_row,
               tensor::detect_isa(), pool);
      slices.push_back({.block_table = tables[i].data(),
                        .context_len = parts[i].context,
                        .row_begin = rows,
                        .row_count = parts[i].rows});
      rows += parts[i].rows;
      tokens += count;
    }
    std::vector<float> out(q.size());
    paged_attention({.cache = cache.view,
                     .layer = 0,
                     .heads = base.heads,
                     .scale = 1.5f / std::sqrt(static_cast<float>(base.head_dim)),
                     .q = q.data(),
                     .q_stride = q_row,
                     .out = out.data(),
                     .out_stride = q_row,
                     .isa = tensor::detect_isa()},
                    slices, scratch, pool);
    EXPECT_TRUE(same_bits(out, want)) << "threads " << threads;
  }
}

TEST(WriteKv, CodesFollowTheStatedRuleOnEveryIsa) {
  Shape shape = {.heads = 2, .kv_heads = 2, .head_dim = 37, .tokens = 50};
  auto values = random_floats(shape.tokens * shape.kv_heads * shape.head_dim, 6);
  for (int i = 0; i < 37; ++i) values[i] = 0;
  for (int i = 37; i < 74; ++i) values[i] *= 1e-30f;
  const int64_t row_floats = shape.kv_heads * shape.head_dim;
  for (DType dtype : {DType::kF8E4M3, DType::kI8}) {
    shape.dtype = dtype;
    for (Isa isa : isas()) {
      Cache cache(shape, 16);
      ComputePool pool({.threads = 2, .spin_us = 0});
      const SequenceSlice slice = {.block_table = cache.table.data(), .row_count = static_cast<int>(shape.tokens)};
      write_kv(cache.view, 1, {&slice, 1}, values.data(), row_floats, values.data(), row_floats, isa, pool);
      for (int64_t t = 0; t < shape.tokens; ++t) {
        for (int h = 0; h < 2; ++h) {
          const float* x = values.data() + (t * 2 + h) * shape.head_dim;
          const std::byte* row = cache.view.at(cache.table[t / 16], 1, h % 2, h) + t % 16 * (shape.head_dim + 4);
          const float want = scale_of(x, shape.head_dim, dtype);
          float scale;
          std::memcpy(&scale, row + shape.head_dim, 4);
          ASSERT_EQ(scale, want) << isa_name(isa);
          for (int d = 0; d < shape.head_dim; ++d) {
            ASSERT_EQ(static_cast<uint8_t>(row[d]), code_of(x[d] / want, dtype)) << isa_name(isa) << " value " << x[d];
          }
        }
      }
    }
  }
}

TEST(WriteKv, RoundsToNearestEvenOnEveryIsa) {
  // Values across the range, with ties, subnormals, infinities and NaN; odd head_dim, so that vector tails are met.
  const Shape shape = {.heads = 1, .kv_heads = 1, .head_dim = 37, .tokens = 64};
  std::mt19937 generator(3);
  std::vector<float> values(shape.tokens * shape.head_dim);
  for (float& v : values) v = std::bit_cast<float>(static_cast<uint32_t>(generator()));
  for (size_t i = 0; i < values.size(); i += 3)
    values[i] = std::ldexp(values[i] > 0 ? 1.0f + 0x1p-11f : 3.5f, i % 40 - 30);
  values[1] = HUGE_VALF;
  values[4] = std::bit_cast<float>(0xffc12345u);
  values[7] = 0x1.004p-16f;
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    Shape typed = shape;
    typed.dtype = dtype;
    for (Isa isa : isas()) {
      Cache cache(typed, 16);
      ComputePool pool({.threads = 2, .spin_us = 0});
      const SequenceSlice slice = {.block_table = cache.table.data(), .row_count = static_cast<int>(shape.tokens)};
      write_kv(cache.view, 1, {&slice, 1}, values.data(), shape.head_dim, values.data(), shape.head_dim, isa, pool);
      for (int64_t t = 0; t < shape.tokens; ++t) {
        for (int kv = 0; kv < 2; ++kv) {
          const auto* row =
              reinterpret_cast<const uint16_t*>(cache.view.at(cache.table[t / 16], 1, kv, 0)) + t % 16 * shape.head_dim;
          for (int d = 0; d < shape.head_dim; ++d) {
            const float v = values[t * shape.head_dim + d];
            const uint16_t want = dtype == DType::kBF16 ? tensor::float_to_bf16(v) : tensor::float_to_f16(v);
            ASSERT_EQ(row[d], want) << isa_name(isa) << " value " << v;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::kernels
