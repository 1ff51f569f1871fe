// Where packed weights lie. A matrix below some megabytes would not fill huge pages of its own: on small ones its first
// touch costs several times as much at load, and every read of it a third of the bandwidth. So small matrices lie one
// behind the other in chunks of huge pages. A chunk lives as long as the last matrix in it. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "tensor/buffer.h"

namespace baton::kernels {

class WeightArena {
 public:
  static constexpr int64_t kChunkBytes = int64_t{32} << 20;
  static constexpr int64_t kAloneBytes = int64_t{8} << 20;  // from here on a matrix has memory of its own

  struct Piece {
    std::shared_ptr<tensor::Buffer> storage;
    std::byte* data = nullptr;  // 64-byte aligned, zeroed
  };
  // kResourceExhausted when the system has no such memory.
  Result<Piece> take(int64_t bytes);

 private:
  std::shared_ptr<tensor::Buffer> chunk_;
  int64_t used_ = 0;
};

}  // namespace baton::kernels
