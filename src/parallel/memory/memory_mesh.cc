#include "parallel/memory/memory_mesh.h"

#include <cstring>
#include <deque>
#include <mutex>

#include "parallel/mesh_state.h"

namespace baton::parallel {
namespace {

// What the meshes have in common; lives as long as any of them.
struct Hub {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::unique_ptr<MeshState>> states;
  std::vector<std::deque<MessageBytes>> parts;  // of exchanges, [to * size + from]

  std::deque<MessageBytes>& parts_of(int to, int from) {
    return parts[static_cast<size_t>(to) * states.size() + static_cast<size_t>(from)];
  }
  void wake() {
    {
      std::lock_guard lock(mutex);
    }
    changed.notify_all();
  }
};

Result<MessageBytes> copy_of(Mesh::Bytes bytes) {
  MessageBytes copy;
  if (!copy.resize(bytes.size())) return fail(Code::kResourceExhausted, "no memory for {} bytes", bytes.size());
  if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
  return copy;
}

class MemoryMeshImpl final : public MemoryMesh {
 public:
  // shared_ptr: the last of the meshes, in whatever thread, ends the hub.
  MemoryMeshImpl(std::shared_ptr<Hub> hub, int rank)
      : hub_(std::move(hub)), state_(*hub_->states[static_cast<size_t>(rank)]) {}
  ~MemoryMeshImpl() override { leave("it closed its mesh"); }

  int rank() const override { return state_.rank(); }
  const std::vector<Member>& members() const override { return state_.members(); }
  const MeshOptions& options() const override { return state_.options(); }
  std::string_view kind() const override { return "memory"; }
  std::optional<Status> failure() const override { return state_.failure(); }
  void on_failure(std::function<void(const Status&)> handler) override { state_.on_failure(std::move(handler)); }

  Result<void> exchange(std::span<const Bytes> to_each, std::vector<MessageBytes>& from_each) override {
    BATON_TRY(check_parts(state_, to_each));
    BATON_TRY(state_.check_alive());
    BATON_TRY(give(to_each));
    from_each.resize(to_each.size());
    const TimePoint deadline = mesh_deadline(options().deadline);
    std::unique_lock lock(hub_->mutex);
    for (int from = 0; from < size(); ++from) {
      auto& parts = hub_->parts_of(rank(), from);
      const bool there =
          hub_->changed.wait_until(lock, deadline, [&] { return !parts.empty() || state_.failure().has_value(); });
      if (there && !parts.empty()) {
        from_each[static_cast<size_t>(from)] = std::move(parts.front());
        parts.pop_front();
        continue;
      }
      lock.unlock();
      if (!there) lose(from, overdue(options().deadline, "its part of an exchange"));
      return state_.check_alive();
    }
    return {};
  }

  Result<void> send(int process, uint32_t tag, Bytes message) override {
    BATON_TRY(state_.check_process(process));
    BATON_TRY(check_message(state_, message.size()));
    BATON_TRY_ASSIGN(MessageBytes copy, copy_of(message));
    MeshState& target = *hub_->states[static_cast<size_t>(process)];
    {
      std::unique_lock lock(hub_->mutex);
      const TimePoint deadline = mesh_deadline(options().deadline);
      const bool there = hub_->changed.wait_until(
          lock, deadline, [&] { return target.has_room(rank()) || state_.failure().has_value(); });
      lock.unlock();
      if (!there) lose(process, overdue(options().deadline, "room for a message"));
    }
    BATON_TRY(state_.check_alive());
    target.deliver(rank(), tag, std::move(copy));
    return {};
  }

  Result<MessageBytes> receive(int process, uint32_t tag, std::optional<Duration> timeout) override {
    BATON_TRY(state_.check_process(process));
    auto message = state_.take(process, tag, timeout.value_or(options().deadline));
    if (message || timeout || message.error().code() != Code::kDeadlineExceeded) return message;
    lose(process, overdue(options().deadline, "a message"));
    return fail(*state_.failure());
  }

  void leave(const std::string& reason) override {
    if (!state_.fail(Status(Code::kCancelled, fmt::format("this process has left the group: {}", reason)))) return;
    tell_others(state_.left(rank(), reason));
  }
  void die(const std::string& reason) override {
    if (!state_.fail(Status(Code::kCancelled, "this process is dead"))) return;
    tell_others(state_.lost(rank(), reason));
  }

 private:
  Result<void> give(std::span<const Bytes> to_each) {
    for (int to = 0; to < size(); ++to) {
      BATON_TRY_ASSIGN(MessageBytes part, copy_of(to_each[static_cast<size_t>(to)]));
      std::lock_guard lock(hub_->mutex);
      hub_->parts_of(to, rank()).push_back(std::move(part));
    }
    hub_->changed.notify_all();
    return {};
  }
  void lose(int process, const std::string& reason) {
    const Status status = state_.lost(process, reason);
    if (state_.fail(status)) tell_others(status);
  }
  void tell_others(const Status& status) {
    for (auto& state : hub_->states) state->fail(status);
  }

  std::shared_ptr<Hub> hub_;
  MeshState& state_;
};

}  // namespace

std::vector<std::unique_ptr<MemoryMesh>> make_memory_meshes(int size, const MeshOptions& options) {
  auto hub = std::make_shared<Hub>();
  std::vector<Member> members;
  for (int rank = 0; rank < size; ++rank) members.push_back({.rank = rank, .address = "memory"});
  hub->parts.resize(members.size() * members.size());
  std::vector<std::unique_ptr<MemoryMesh>> meshes;
  for (int rank = 0; rank < size; ++rank) {
    auto state = std::make_unique<MeshState>(rank, members, options);
    state->set_waker([hub = hub.get()] { hub->wake(); });
    state->set_room_waker([hub = hub.get()] { hub->wake(); });
    hub->states.push_back(std::move(state));
  }
  for (int rank = 0; rank < size; ++rank) meshes.push_back(std::make_unique<MemoryMeshImpl>(hub, rank));
  return meshes;
}

}  // namespace baton::parallel
