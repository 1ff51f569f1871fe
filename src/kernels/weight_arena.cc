#include "kernels/weight_arena.h"

namespace baton::kernels {

Result<WeightArena::Piece> WeightArena::take(int64_t bytes) {
  const bool alone = bytes >= kAloneBytes;
  if (!alone && chunk_ != nullptr && bytes <= kChunkBytes - used_) {
    Piece piece{.storage = chunk_, .data = chunk_->data() + used_};
    used_ += (bytes + 63) / 64 * 64;
    return piece;
  }
  auto storage = std::make_shared<tensor::Buffer>();
  BATON_TRY_ASSIGN(*storage, tensor::Buffer::allocate(static_cast<size_t>(alone ? bytes : kChunkBytes)));
  Piece piece{.storage = storage, .data = storage->data()};
  if (alone) return piece;
  chunk_ = std::move(storage);
  used_ = (bytes + 63) / 64 * 64;
  return piece;
}

}  // namespace baton::kernels
