#include "engine/kv_host.h"

#include <utility>

#include "kv/rank_arenas.h"
#include "tensor/buffer.h"

namespace baton::engine {
namespace {

class PrivateKvHost final : public KvHost {
 public:
  PrivateKvHost(kv::RankArenas arenas, tensor::Buffer buffer)
      : arenas_(std::move(arenas)), buffer_(std::move(buffer)) {}
  std::byte* memory(int rank) override { return buffer_.data() + arenas_.data_offset(rank); }

 private:
  kv::RankArenas arenas_;
  tensor::Buffer buffer_;
};

}  // namespace

Result<std::unique_ptr<KvHost>> make_private_kv_host(KvHostRequest request) {
  kv::RankArenas arenas;
  for (const auto& rank : request.ranks) arenas.add(rank.layout);
  auto buffer = tensor::Buffer::allocate(static_cast<size_t>(arenas.data_bytes()));
  if (!buffer) return fail(buffer.error().with_context("KV cache"));
  return std::make_unique<PrivateKvHost>(std::move(arenas), *std::move(buffer));
}

}  // namespace baton::engine
