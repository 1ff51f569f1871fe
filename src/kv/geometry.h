// Where KV lives: the block-major arena layout and its checksum units. Pure arithmetic; no memory is touched.
//
// Arena of a GQA group: [block][layer][k|v][kv head][token][dim]. A block is one descriptor of a bulk hand-off, a layer
// of it one of a layerwise hand-off, a head of it one of a re-sharded one. A checksum unit is (block, layer, kv head),
// covering the head's keys and then its values; no plan cuts below a unit.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "tensor/dtype.h"

namespace baton::kv {

// Paged keys and values with one shape in all of a group's layers.
struct PagedGeometry {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int block_size = 0;  // tokens per block
  tensor::DType dtype = tensor::DType::kBF16;

  int64_t head_bytes() const { return tensor::dtype_bytes(dtype, int64_t{block_size} * head_dim); }
  int64_t kv_bytes() const { return head_bytes() * kv_heads; }  // keys, or values, of a layer of a block
  int64_t layer_bytes() const { return kv_bytes() * 2; }
  int64_t block_bytes() const { return layer_bytes() * layers; }
  int64_t token_bytes() const { return block_bytes() / block_size; }
  int units_per_block() const { return layers * kv_heads; }
  int unit_index(int layer, int kv_head) const { return layer * kv_heads + kv_head; }
  // Byte offset of a unit's keys (kv = 0) or values (kv = 1) from the arena's start; head_bytes() long each, of which
  // tokens * head_dim elements are sealed.
  int64_t offset(int64_t block, int layer, int kv, int kv_head) const {
    return block * block_bytes() + layer * layer_bytes() + kv * kv_bytes() + kv_head * head_bytes();
  }
  int64_t sealed_bytes(int tokens) const { return tensor::dtype_bytes(dtype, int64_t{tokens} * head_dim); }
  bool operator==(const PagedGeometry&) const = default;
};

}  // namespace baton::kv
