#include "engine/ranks/lockstep.h"

#include <algorithm>

#include "base/byte_codec.h"
#include "base/log.h"

namespace baton::engine {
namespace {

constexpr uint32_t kWakeTag = 1;

struct Wake {
  uint64_t rest = 0;
  int32_t origin = 0;
};

std::vector<std::byte> encode(const Wake& wake) {
  ByteWriter writer;
  writer.put(wake.rest);
  writer.put(wake.origin);
  return writer.take();
}

Result<Wake> decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Wake wake{.rest = reader.get<uint64_t>(), .origin = reader.get<int32_t>()};
  BATON_TRY(reader.finish("a wake of replicas"));
  return wake;
}

int next_of(const parallel::Mesh& mesh) { return (mesh.rank() + 1) % mesh.size(); }
int last_of(const parallel::Mesh& mesh) { return (mesh.rank() + mesh.size() - 1) % mesh.size(); }

}  // namespace

Lockstep::Lockstep(parallel::Mesh& mesh, std::function<void()> wake) : mesh_(mesh), wake_(std::move(wake)) {
  if (mesh_.size() > 1) watcher_ = std::thread([this] { watch(); });
}

Lockstep::~Lockstep() {
  mesh_.leave("the engine of this replica has ended");
  if (watcher_.joinable()) watcher_.join();
}

// Ends with the group; the engine is woken so that it sees that, too.
void Lockstep::watch() {
  for (;;) {
    const auto message = mesh_.receive(last_of(mesh_), kWakeTag, parallel::kNoTimeout);
    if (!message) break;
    const auto wake = decode(message->span());
    if (!wake) {
      log_warning("replica={} {}", last_of(mesh_), wake.error().message());
      continue;
    }
    if (woken_rest_.load() < wake->rest) woken_rest_.store(wake->rest);
    wake_();
    if (next_of(mesh_) != wake->origin && !mesh_.send(next_of(mesh_), kWakeTag, message->span())) break;
  }
  wake_();
}

Result<bool> Lockstep::step_together(bool rows_here) {
  if (auto failure = mesh_.failure()) return fail(failure->with_context("the group of replicas is over"));
  if (mesh_.size() == 1) return rows_here;
  while (!resting_ || rows_here || woken()) {
    if (resting_ && !woken()) {
      BATON_TRY(mesh_.send(next_of(mesh_), kWakeTag, encode({.rest = rest_, .origin = mesh_.rank()})));
    }
    resting_ = false;
    BATON_TRY_ASSIGN(const bool any, any_has_rows(rows_here));
    if (any) return true;
    resting_ = true;
    ++rest_;
  }
  return false;
}

Result<bool> Lockstep::any_has_rows(bool rows_here) {
  const std::byte mine[] = {static_cast<std::byte>(rows_here)};
  const std::vector<parallel::Mesh::Bytes> to_each(static_cast<size_t>(mesh_.size()), mine);
  BATON_TRY(mesh_.exchange(to_each, theirs_));
  bool any = false;
  for (const auto& one : theirs_) {
    if (one.size() != 1) return fail(Code::kMismatch, "replicas are at different points of a step");
    any |= one.data()[0] != std::byte{0};
  }
  return any;
}

Result<std::vector<std::vector<std::byte>>> MeshExchange::exchange(std::vector<std::vector<std::byte>> to_each) {
  const std::vector<parallel::Mesh::Bytes> parts(to_each.begin(), to_each.end());
  BATON_TRY(mesh_.exchange(parts, theirs_));
  std::vector<std::vector<std::byte>> from_each;
  for (const auto& one : theirs_) from_each.emplace_back(one.span().begin(), one.span().end());
  return from_each;
}

}  // namespace baton::engine
