#include "engine/kv_host.h"

#include "tensor/buffer.h"

namespace baton::engine {
namespace {

class PrivateKvHost final : public KvHost {
 public:
  explicit PrivateKvHost(tensor::Buffer buffer) : buffer_(std::move(buffer)) {}
  std::byte* memory() override { return buffer_.data(); }

 private:
  tensor::Buffer buffer_;
};

}  // namespace

Result<std::unique_ptr<KvHost>> make_private_kv_host(KvHostRequest request) {
  const auto bytes = static_cast<size_t>(request.layout.data_bytes());
  auto buffer = tensor::Buffer::allocate(bytes);
  if (!buffer) return fail(buffer.error().with_context("KV cache"));
  return std::make_unique<PrivateKvHost>(*std::move(buffer));
}

}  // namespace baton::engine
