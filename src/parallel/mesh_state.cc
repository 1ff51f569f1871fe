#include "parallel/mesh_state.h"

#include <utility>

#include "base/check.h"

namespace baton::parallel {

TimePoint mesh_deadline(Duration timeout) {
  const TimePoint now = SteadyClock().now();
  return timeout >= TimePoint::max() - now ? TimePoint::max() : now + timeout;
}

std::string overdue(Duration timeout, std::string_view what) {
  return fmt::format("it has not given {} within {:.3g} s (VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS)", what,
                     std::chrono::duration<double>(timeout).count());
}

Result<void> check_message(const MeshState& state, uint64_t bytes) {
  if (bytes <= state.options().message_bytes_max) return {};
  return fail(Code::kOutOfRange, "a message of {} bytes is over the limit of {} bytes", bytes,
              state.options().message_bytes_max);
}

Result<void> check_parts(const MeshState& state, std::span<const Mesh::Bytes> to_each) {
  if (to_each.size() != state.members().size()) {
    return fail(Code::kInvalidArgument, "an exchange of {} parts in a group of {}", to_each.size(), state.size());
  }
  for (const auto& part : to_each) BATON_TRY(check_message(state, part.size()));
  return {};
}

MeshState::MeshState(int rank, std::vector<Member> members, MeshOptions options)
    : rank_(rank), members_(std::move(members)), options_(options), inboxes_(members_.size()) {
  BATON_CHECK(rank_ >= 0 && rank_ < size(), "rank={} size={}", rank_, size());
}

std::string MeshState::name_of(int process) const {
  return fmt::format("process {} ({})", process, members_[static_cast<size_t>(process)].address);
}

Result<void> MeshState::check_process(int process) const {
  if (process >= 0 && process < size()) return {};
  return baton::fail(Code::kInvalidArgument, "there is no process {} in a group of {}", process, size());
}

Status MeshState::lost(int process, std::string_view reason) const {
  return Status(Code::kUnavailable, fmt::format("{} is lost: {}", name_of(process), reason));
}

Status MeshState::left(int process, std::string_view reason) const {
  return Status(Code::kUnavailable, fmt::format("{} has left: {}", name_of(process), reason));
}

bool MeshState::fail(const Status& status) {
  std::function<void(const Status&)> handler;
  {
    std::lock_guard lock(mutex_);
    if (failure_) return false;
    failure_ = status;
    if (status.code() != Code::kCancelled) handler = std::exchange(handler_, nullptr);
  }
  changed_.notify_all();
  if (waker_) waker_();
  if (handler) handler(status);
  return true;
}

std::optional<Status> MeshState::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

std::optional<Status> MeshState::wait_failure(Duration timeout) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return failure_.has_value(); });
  return failure_;
}

Result<void> MeshState::check_alive() const {
  if (auto status = failure()) return baton::fail(std::move(*status));
  return {};
}

void MeshState::on_failure(std::function<void(const Status&)> handler) {
  std::optional<Status> failed;
  {
    std::lock_guard lock(mutex_);
    if (!failure_) handler_ = std::move(handler);
    failed = failure_;
  }
  if (failed && failed->code() != Code::kCancelled) handler(*failed);
}

void MeshState::deliver(int process, uint32_t tag, MessageBytes message) {
  {
    std::lock_guard lock(mutex_);
    Inbox& inbox = inboxes_[static_cast<size_t>(process)];
    inbox.bytes += message.size();
    inbox.by_tag[tag].push_back(std::move(message));
  }
  changed_.notify_all();
}

bool MeshState::has_room(int process) const {
  std::lock_guard lock(mutex_);
  Inbox& inbox = inboxes_[static_cast<size_t>(process)];
  inbox.full_seen = inbox.bytes >= options_.inbox_bytes_max;
  return !inbox.full_seen;
}

Result<MessageBytes> MeshState::take(int process, uint32_t tag, Duration timeout) {
  const TimePoint deadline = mesh_deadline(timeout);
  std::unique_lock lock(mutex_);
  Inbox& inbox = inboxes_[static_cast<size_t>(process)];
  const auto ready = [&] { return failure_.has_value() || inbox.by_tag.contains(tag); };
  if (deadline == TimePoint::max()) {
    changed_.wait(lock, ready);
  } else {
    changed_.wait_until(lock, deadline, ready);
  }
  if (failure_) return baton::fail(*failure_);
  const auto found = inbox.by_tag.find(tag);
  if (found == inbox.by_tag.end()) {
    return baton::fail(Code::kDeadlineExceeded, "{} sent no message {} within {:.3f} s", name_of(process), tag,
                       std::chrono::duration<double>(timeout).count());
  }
  MessageBytes message = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) inbox.by_tag.erase(found);
  inbox.bytes -= message.size();
  const bool wake = inbox.full_seen && inbox.bytes < options_.inbox_bytes_max;
  if (wake) inbox.full_seen = false;
  lock.unlock();
  if (wake && room_waker_) room_waker_();
  return message;
}

}  // namespace baton::parallel
