// What the absorbed form costs a prompt, beside the plain form of the same attention: keys and values of every head
// made from the latents by kv_b, then ordinary attention. DeepSeek V3's head (nope 128, rotary 64, value 128, rank
// 512), one chunk of 512 rows after a context that the plain form must expand anew for every chunk. One thread,
// processor time.
//   mla_forms_bench [HEADS]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/latent_attention.h"
#include "kernels/matmul.h"
#include "tensor/float_convert.h"

namespace baton::kernels {
namespace {

constexpr int kNope = 128, kRope = 64, kValue = 128, kRank = 512, kRows = 512;

double seconds_of(const std::function<void()>& body) {
  double best = 1e30;
  for (int i = 0; i < 3; ++i) {
    timespec begin, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    body();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    best = std::min(
        best, static_cast<double>(end.tv_sec - begin.tv_sec) + 1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec));
  }
  return best;
}

PackedMatrix bf16_matrix(int64_t out, int64_t in) {
  auto packed = *PackedMatrix::reserve(
      {.out_features = out, .in_features = in, .dtype = tensor::DType::kBF16, .isa = tensor::detect_isa()});
  std::vector<uint16_t> values(static_cast<size_t>(out * in));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = tensor::float_to_bf16(static_cast<float>(i % 61) * 0.001f - 0.03f);
  }
  packed.pack_rows(0, out, reinterpret_cast<const std::byte*>(values.data()));
  BATON_CHECK(packed.finish().has_value());
  return packed;
}

// Memory of one layer's cache, and a block table over it.
struct Memory {
  std::vector<std::byte> bytes;
  std::vector<int32_t> table;
  Memory(int64_t block_stride, int64_t tokens) : table(static_cast<size_t>((tokens + 15) / 16)) {
    bytes.resize(table.size() * static_cast<size_t>(block_stride), std::byte{0x3c});
    std::iota(table.begin(), table.end(), 0);
  }
  SequenceSlice slice(int64_t tokens) const {
    return {.block_table = table.data(), .context_len = tokens - kRows, .row_count = kRows};
  }
};

double absorbed_seconds(int heads, int64_t tokens, ComputePool& pool) {
  std::vector<PackedMatrix> key_up, value_up;
  for (int h = 0; h < heads; ++h) {
    key_up.push_back(bf16_matrix(kRank, kNope));
    value_up.push_back(bf16_matrix(kValue, kRank));
  }
  TokenCacheView cache{
      .entry = {.kind = PagedKind::kLatent, .dim = kRank, .rope_dim = kRope, .dtype = tensor::DType::kBF16},
      .block_size = 16};
  cache.token_bytes = entry_token_bytes(cache.entry);
  cache.block_stride = 16 * cache.token_bytes;
  Memory memory(cache.block_stride, tokens);
  cache.base = memory.bytes.data();
  auto activations = *ActivationBuffer::allocate(int64_t{kRows} * heads, kRank);
  const int64_t width = kRank + kRope;
  std::vector<float> nope(kRows * heads * kNope, 0.1f), q(kRows * heads * width, 0.1f), latents(kRows * heads * kRank);
  std::vector<float> out(kRows * heads * kValue);
  std::vector<std::byte> scratch(latent_attention_scratch_bytes(heads, kRank, kRope, 1));
  const SequenceSlice slice = memory.slice(tokens);
  return seconds_of([&] {
    matmul_heads(key_up, nope.data(), heads * kNope, kRows, latents.data(), heads * kRank, activations, pool);
    latent_attention({.cache = cache,
                      .heads = heads,
                      .scale = 0.05f,
                      .q = q.data(),
                      .q_stride = heads * width,
                      .out = latents.data(),
                      .out_stride = heads * kRank,
                      .isa = tensor::detect_isa()},
                     {&slice, 1}, scratch, pool);
    matmul_heads(value_up, latents.data(), heads * kRank, kRows, out.data(), heads * kValue, activations, pool);
  });
}

// Values are filled up to the keys' width: our attention has one width for both.
double plain_seconds(int heads, int64_t tokens, ComputePool& pool) {
  const int width = kNope + kRope;
  const PackedMatrix kv_b = bf16_matrix(int64_t{heads} * (kNope + kValue), kRank);
  auto activations = *ActivationBuffer::allocate(tokens, kRank);
  std::vector<float> latents(static_cast<size_t>(tokens * kRank), 0.1f);
  std::vector<float> expanded(static_cast<size_t>(tokens * heads * (kNope + kValue)));
  PagedKvView cache{.dtype = tensor::DType::kF32, .block_size = 16, .kv_heads = heads, .head_dim = width};
  cache.head_stride = int64_t{16} * width * 4;
  cache.kv_stride = cache.head_stride * heads;
  cache.layer_stride = cache.block_stride = 2 * cache.kv_stride;
  Memory memory(cache.block_stride, tokens);
  cache.base = memory.bytes.data();
  std::vector<float> q(static_cast<size_t>(kRows * heads * width), 0.1f), out(q.size());
  std::vector<std::byte> scratch(attention_scratch_bytes(heads, heads, width, 1));
  const SequenceSlice slice = memory.slice(tokens);
  return seconds_of([&] {
    activations.quantize(latents.data(), kRank, tokens, kRank, ActivationFormat::kBF16, tensor::detect_isa(), pool);
    matmul(kv_b, activations, nullptr, expanded.data(), int64_t{heads} * (kNope + kValue), pool);
    paged_attention({.cache = cache,
                     .heads = heads,
                     .scale = 0.05f,
                     .q = q.data(),
                     .q_stride = int64_t{heads} * width,
                     .out = out.data(),
                     .out_stride = int64_t{heads} * width,
                     .isa = tensor::detect_isa()},
                    {&slice, 1}, scratch, pool);
  });
}

}  // namespace
}  // namespace baton::kernels

int main(int argc, char** argv) {
  const int heads = argc > 1 ? std::max(1, std::atoi(argv[1])) : 16;
  baton::ComputePool pool({.threads = 1, .spin_us = 0});
  fmt::print("{} heads, 512 rows        absorbed       plain    absorbed / plain\n", heads);
  for (const int64_t tokens : {512, 2048, 8192}) {
    const double absorbed = baton::kernels::absorbed_seconds(heads, tokens, pool);
    const double plain = baton::kernels::plain_seconds(heads, tokens, pool);
    fmt::print("up to position {:6}   {:8.1f} ms {:8.1f} ms    {:.2f}\n", tokens, absorbed * 1e3, plain * 1e3,
               absorbed / plain);
  }
}
