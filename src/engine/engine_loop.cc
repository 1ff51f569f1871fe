// The engine thread: commands, then a step, for ever. It blocks when there is nothing to do.
#include <exception>
#include <utility>

#include "base/log.h"
#include "engine/engine_impl.h"

namespace baton::engine {
namespace {

// With nothing at all to do, only a command or a wake ends the wait.
constexpr auto kIdle = std::chrono::hours(1);
// With something at a connector, it is asked again after this, should its wake be lost.
constexpr auto kPoll = std::chrono::milliseconds(20);

}  // namespace

void EngineImpl::run() {
  try {
    loop();
    core_->leave_group();
  } catch (const std::exception& error) {
    die(error.what());
  } catch (...) {
    die("an exception of unknown type");
  }
}

void EngineImpl::loop() {
  bool progressed = false;
  while (!inbox_.closed()) {
    commands_ = progressed ? inbox_.drain() : inbox_.wait_drain(patience());
    next_command_ = 0;
    // Before what was asked for is looked at: a wake that comes later is queued anew.
    wake_pending_ = false;
    if (inbox_.closed()) return;
    handle_commands();
    if (reset_requested_.exchange(false)) core_->reset_prefix_cache();
    const auto stepped = core_->step();
    if (!stepped) return die(stepped.error().message());
    progressed = *stepped;
    publish();
  }
}

Duration EngineImpl::patience() const {
  if (core_->handoff_pending() || core_->has_requests()) return kPoll;
  return kIdle;
}

// Goes on where an exception stopped it, so that die() loses no other command.
void EngineImpl::handle_commands() {
  while (next_command_ < commands_.size()) handle(std::move(commands_[next_command_++]));
}

void EngineImpl::handle(Command command) {
  if (auto* submission = std::get_if<Submission>(&command)) return core_->submit(std::move(*submission));
  if (const auto* aborted = std::get_if<Abort>(&command)) return core_->abort(aborted->id, aborted->reason);
  if (const auto* declined = std::get_if<Decline>(&command)) return core_->decline(declined->params);
}

void EngineImpl::publish() {
  {
    std::lock_guard lock(door_);
    stats_ = core_->stats();
  }
  changed_.notify_all();
}

// Every request, running or still in the queue, hears of it.
void EngineImpl::die(const std::string& reason) {
  // Replicas that are stopped together see each other go.
  if (inbox_.closed()) {
    log_info("engine_stopped reason={:?}", reason);
  } else {
    log_error("engine_died reason={:?}", reason);
  }
  {
    std::lock_guard lock(door_);
    dead_ = true;
    reason_ = reason;
  }
  const Status error(Code::kUnavailable, fmt::format("the engine has stopped: {}", reason));
  try {
    core_->leave(reason);
    handle_commands();
    commands_ = inbox_.drain();
    next_command_ = 0;
    handle_commands();
    core_->fail_all(error);
  } catch (const std::exception& second) {
    log_error("engine_died_again reason={:?}", second.what());
  }
  changed_.notify_all();
}

}  // namespace baton::engine
