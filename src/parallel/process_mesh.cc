#include "parallel/process_mesh.h"

#include <cstring>

#include "parallel/lane_exchange.h"
#include "parallel/lane_messages.h"
#include "parallel/net/control.h"

namespace baton::parallel {
namespace {

// A member that ends closes all its connections: how long to wait for the one that says why.
constexpr Duration kReasonPatience = std::chrono::seconds(2);

class ProcessMesh final : public Mesh {
 public:
  explicit ProcessMesh(ProcessMeshParts parts)
      : parts_(std::move(parts)), state_(*parts_.state), exchange_(state_, *parts_.exchange) {}
  ~ProcessMesh() override {
    leave("it closed its mesh");
    parts_.companion.reset();
    messages_.reset();
    control_.reset();
  }

  Result<void> start() {
    state_.set_waker([this] {
      parts_.exchange->stop();
      parts_.messages->stop();
    });
    BATON_TRY_ASSIGN(control_, Control::start(state_, std::move(parts_.control)));
    messages_ = std::make_unique<LaneMessages>(state_, *parts_.messages,
                                               [this](int process, const Status& status, bool path_broken) {
                                                 static_cast<void>(end(process, status, path_broken));
                                               });
    if (parts_.companion) parts_.companion->attach([this] { return state_.failure(); });
    return {};
  }

  int rank() const override { return state_.rank(); }
  const std::vector<Member>& members() const override { return state_.members(); }
  const MeshOptions& options() const override { return state_.options(); }
  std::string_view kind() const override { return parts_.kind; }
  std::optional<Status> failure() const override { return state_.failure(); }
  void on_failure(std::function<void(const Status&)> handler) override { state_.on_failure(std::move(handler)); }

  Result<void> exchange(std::span<const Bytes> to_each, std::vector<MessageBytes>& from_each) override {
    BATON_TRY(check_parts(state_, to_each));
    BATON_TRY(state_.check_alive());
    auto failure = exchange_.run(to_each, from_each, options().deadline);
    if (!failure) return {};
    return fail(end(failure->process, failure->status, failure->path_broken));
  }

  Result<void> send(int process, uint32_t tag, Bytes message) override {
    BATON_TRY(state_.check_process(process));
    BATON_TRY(check_message(state_, message.size()));
    BATON_TRY(state_.check_alive());
    if (process == rank()) return send_to_self(tag, message);
    auto failure = messages_->send(process, tag, message);
    if (!failure) return {};
    return fail(end(process, failure->status, failure->path_broken));
  }

  Result<MessageBytes> receive(int process, uint32_t tag, std::optional<Duration> timeout) override {
    BATON_TRY(state_.check_process(process));
    auto message = state_.take(process, tag, timeout.value_or(options().deadline));
    if (message || timeout || message.error().code() != Code::kDeadlineExceeded) return message;
    return fail(end(process, state_.lost(process, overdue(options().deadline, "a message")), false));
  }

  void leave(const std::string& reason) override {
    if (!state_.fail(Status(Code::kCancelled, fmt::format("this process has left the group: {}", reason)))) return;
    if (control_) control_->tell_leaving(reason);
  }

 private:
  Result<void> send_to_self(uint32_t tag, Bytes message) {
    MessageBytes copy;
    if (!copy.resize(message.size())) return fail(Code::kResourceExhausted, "no memory for {} bytes", message.size());
    if (!message.empty()) std::memcpy(copy.data(), message.data(), message.size());
    state_.deliver(rank(), tag, std::move(copy));
    return {};
  }

  // Makes a failure known here and to all, unless the group is over already. What the group ended with.
  Status end(int process, const Status& status, bool path_broken) {
    Status known = status;
    if (path_broken) {
      if (auto why = state_.wait_failure(kReasonPatience)) return *why;
      known = state_.lost(process, status.message());
    }
    if (state_.fail(known) && control_) {
      control_->tell_over(known.code() == Code::kUnavailable ? known : state_.left(rank(), known.message()));
    }
    return *state_.failure();
  }

  ProcessMeshParts parts_;
  MeshState& state_;
  LaneExchange exchange_;
  std::unique_ptr<LaneMessages> messages_;
  std::unique_ptr<Control> control_;
};

}  // namespace

Result<std::unique_ptr<Mesh>> make_process_mesh(ProcessMeshParts parts) {
  auto mesh = std::make_unique<ProcessMesh>(std::move(parts));
  BATON_TRY(mesh->start());
  return mesh;
}

}  // namespace baton::parallel
