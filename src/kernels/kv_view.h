// What a kernel may know of the KV cache: pointers and strides. Built by the engine from kv::PagedGeometry.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace baton::kernels {

// Paged keys and values of one GQA group, arena layout [block][layer][k|v][kv head][token][dim].
struct PagedKvView {
  std::byte* base = nullptr;
  tensor::DType dtype = tensor::DType::kBF16;  // bf16, f16 or f32
  int block_size = 0;                          // tokens per block
  int kv_heads = 0;
  int head_dim = 0;
  int64_t block_stride = 0;  // bytes
  int64_t layer_stride = 0;  // bytes
  int64_t kv_stride = 0;     // bytes from keys to values
  int64_t head_stride = 0;   // bytes

  // First key (kv = 0) or value (kv = 1) of a head of a layer in a block.
  std::byte* at(int64_t block, int64_t layer, int kv, int64_t head) const {
    return base + block * block_stride + layer * layer_stride + kv * kv_stride + head * head_stride;
  }
};

// The rows of one sequence inside a step. Row i of the slice has position context_len + i.
struct SequenceSlice {
  const int32_t* block_table = nullptr;  // blocks holding positions [0, context_len + row_count)
  int64_t context_len = 0;               // tokens in the cache before this step
  int row_begin = 0;                     // first row of the step's batch
  int row_count = 0;
};

}  // namespace baton::kernels
