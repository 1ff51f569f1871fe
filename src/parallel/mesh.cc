#include "parallel/mesh.h"

#include <charconv>
#include <cstring>

namespace baton::parallel {
namespace {

constexpr uint32_t kBroadcastTag = Mesh::kReservedTag;

Result<MessageBytes> copy_of(Mesh::Bytes message) {
  MessageBytes copy;
  if (!copy.resize(message.size())) return fail(Code::kResourceExhausted, "no memory for {} bytes", message.size());
  if (!message.empty()) std::memcpy(copy.data(), message.data(), message.size());
  return copy;
}

}  // namespace

Result<Duration> execute_timeout(const std::string& value) {
  if (value.empty()) return Duration(std::chrono::seconds(300));
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (error != std::errc() || end != value.data() + value.size() || seconds < 1 || seconds > 1'000'000) {
    return fail(Code::kInvalidArgument, "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS is '{}'; use whole seconds, 1 to 1000000",
                value);
  }
  return Duration(std::chrono::seconds(seconds));
}

Result<MessageBytes> Mesh::broadcast(int root, Bytes message, std::optional<Duration> timeout) {
  if (root < 0 || root >= size()) {
    return fail(Code::kInvalidArgument, "broadcast from process {}: there are {}", root, size());
  }
  if (root != rank()) return receive(root, kBroadcastTag, timeout);
  for (int process = 0; process < size(); ++process) {
    if (process != root) BATON_TRY(send(process, kBroadcastTag, message));
  }
  return copy_of(message);
}

}  // namespace baton::parallel
