#include "engine/ranks/leader_executor.h"

#include <stdexcept>
#include <utility>

#include "base/log.h"
#include "engine/ranks/member_messages.h"
#include "engine/ranks/step_codec.h"

namespace baton::engine {
namespace {

constexpr auto kEndPatience = std::chrono::seconds(5);

}  // namespace

LeaderExecutor::LeaderExecutor(parallel::Mesh& mesh, std::unique_ptr<LocalPipeline> pipeline, int vocab_size,
                               std::function<void()> wake)
    : mesh_(mesh),
      waker_(std::make_shared<Waker>()),
      row_bytes_(static_cast<size_t>(vocab_size) * 4),
      pipeline_(std::move(pipeline)) {
  waker_->wake = std::move(wake);
  mesh_.on_failure([waker = waker_](const Status&) {
    std::lock_guard lock(waker->mutex);
    if (waker->wake) waker->wake();
  });
}

LeaderExecutor::~LeaderExecutor() {
  {
    std::lock_guard lock(waker_->mutex);
    waker_->wake = {};
  }
  if (mesh_.failure()) return;
  const std::byte end[] = {static_cast<std::byte>(MemberCommand::kEnd)};
  if (!tell_all(end)) return;
  for (int member = 1; member < mesh_.size(); ++member) {
    if (const auto gone = mesh_.receive(member, tag(MemberTag::kReply), kEndPatience); !gone) {
      log_warning("member={} does not say that it ends: {}", member, gone.error().message());
    }
  }
  mesh_.leave("the engine has ended");
}

Result<void> LeaderExecutor::tell_all(std::span<const std::byte> message) {
  for (int member = 1; member < mesh_.size(); ++member) {
    BATON_TRY(mesh_.send(member, tag(MemberTag::kControl), message));
  }
  return {};
}

Result<void> LeaderExecutor::begin(const StepPlan& plan) {
  auto& step = pipeline_->next_step();
  step.reused_blocks = std::exchange(reused_blocks_, {});
  step.reused_slots = std::exchange(reused_slots_, {});
  lay_out(plan, step);
  auto message = encode_step(step);
  message.insert(message.begin(), static_cast<std::byte>(MemberCommand::kStep));
  BATON_TRY(tell_all(message));
  pipeline_->start([this](const LocalPipeline::Output& output) {
    const auto sent = mesh_.send(1, tag(MemberTag::kActivations), std::as_bytes(output.stage_out));
    if (!sent) throw std::runtime_error(sent.error().message());
  });
  return {};
}

Result<const float*> LeaderExecutor::finish() {
  auto local = pipeline_->take();
  if (!local) return fail(reason_of(local.error()));
  auto logits = mesh_.receive(mesh_.size() - 1, tag(MemberTag::kLogits));
  if (!logits) return fail(reason_of(logits.error()));
  logits_ = *std::move(logits);
  if (logits_.size() != local->step->logit_rows.size() * row_bytes_) {
    return fail(Code::kDataLoss, "{} bytes of logits for {} rows", logits_.size(), local->step->logit_rows.size());
  }
  return reinterpret_cast<const float*>(logits_.data());
}

Status LeaderExecutor::reason_of(Status seen) const { return mesh_.failure().value_or(std::move(seen)); }

Result<void> LeaderExecutor::health() {
  if (auto failure = mesh_.failure()) return fail(*std::move(failure));
  return {};
}

}  // namespace baton::engine
