// What the tests of the latent cache, latent attention and the indexer share: arenas of one entry, and values as a
// plain scalar reader finds them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/kv_view.h"
#include "kernels/latent_cache.h"
#include "tensor/cpu.h"
#include "tensor/float_convert.h"

namespace baton::kernels::test {

using tensor::DType;
using tensor::Isa;

inline constexpr DType kCacheTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kI8};

inline std::vector<Isa> isas() {
  std::vector<Isa> list = {Isa::kPortable};
  if (tensor::detect_isa() >= Isa::kAvx2) list.push_back(Isa::kAvx2);
  if (tensor::detect_isa() >= Isa::kAvx512) list.push_back(Isa::kAvx512);
  return list;
}

inline std::vector<float> random_floats(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& v : values) v = normal(generator);
  return values;
}

// An arena whose blocks are shuffled and hold 32 bytes of something else before the entry; bytes that no token fills
// are NaN (0xff, in every format).
struct TokenCache {
  std::vector<std::byte> bytes;
  std::vector<int32_t> table;
  TokenCacheView view;

  TokenCache(const PagedEntry& entry, int64_t tokens, int block_size) {
    const int64_t blocks = (tokens + block_size - 1) / block_size;
    view.entry = entry;
    view.block_size = block_size;
    view.token_bytes = entry_token_bytes(entry);
    view.block_stride = entry_block_bytes(entry, block_size) + 32;
    view.block_stride += (4 - view.block_stride % 4) % 4;
    bytes.assign(view.block_stride * (blocks + 1), std::byte{0xff});
    view.base = bytes.data() + 32;
    for (int64_t i = 0; i < blocks; ++i) table.push_back(static_cast<int32_t>(i + 1));
    std::shuffle(table.begin(), table.end(), std::mt19937(5));
  }
  const std::byte* token(int64_t t) const {
    return view.block(table[t / view.block_size]) + t % view.block_size * view.token_bytes;
  }
};

inline float read_element(const std::byte* p, int index, DType dtype) {
  uint16_t half;
  float full;
  switch (dtype) {
    case DType::kF32:
      std::memcpy(&full, p + 4L * index, 4);
      return full;
    case DType::kF16:
      std::memcpy(&half, p + 2L * index, 2);
      return tensor::f16_to_float(half);
    case DType::kBF16:
      std::memcpy(&half, p + 2L * index, 2);
      return tensor::bf16_to_float(half);
    case DType::kI8:
      return static_cast<float>(static_cast<int8_t>(p[index]));
    default:
      return tensor::e4m3_to_float(static_cast<uint8_t>(p[index]));
  }
}

// One token as kv_view.h describes its bytes: [dim + rope_dim].
inline std::vector<float> read_token(const PagedEntry& entry, const std::byte* p) {
  std::vector<float> values;
  const bool codes = entry.dtype == DType::kI8 || entry.dtype == DType::kF8E4M3;
  if (!codes) {
    for (int i = 0; i < entry.dim + entry.rope_dim; ++i) values.push_back(read_element(p, i, entry.dtype));
    return values;
  }
  const bool latent = entry.kind == PagedKind::kLatent;
  const int groups = latent ? (entry.dim + 127) / 128 : 1;
  for (int i = 0; i < entry.dim; ++i) {
    const DType scale_type = !latent && entry.dtype == DType::kI8 ? DType::kF16 : DType::kF32;
    const float scale = read_element(p + entry.dim, latent ? i / 128 : 0, scale_type);
    values.push_back(read_element(p, i, entry.dtype) * scale);
  }
  for (int i = 0; i < entry.rope_dim; ++i) {
    values.push_back(read_element(p + entry.dim + 4L * groups, i, DType::kBF16));
  }
  return values;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace baton::kernels::test
