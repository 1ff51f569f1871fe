#include "transfer/push_session.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "transfer/handoff_port.h"

namespace baton::transfer {
namespace {

namespace asio = boost::asio;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr Duration kWriteTimeout = std::chrono::seconds(10);

}  // namespace

PushSession::PushSession(PushContext& context, asio::io_context& io, PushStep about)
    : context_(context), about_(std::move(about)), wake_(io) {}

void PushSession::add(PushJob job) {
  if (given_up_) return;
  jobs_.push_back(std::move(job));
  wake_.cancel();
}

void PushSession::finish(Offer offer) {
  prefilled_ = context_.clock.now();
  hidden_ = busy_;
  offer_ = std::move(offer);
  wake_.cancel();
}

void PushSession::give_up() {
  given_up_ = true;
  jobs_.clear();
  wake_.cancel();
  // Then D has been told all but the end: nothing more may be read of its blocks.
  if (offer_) close();
}

void PushSession::close() {
  jobs_.clear();
  if (channel_) channel_->close();
}

net::Task<Result<void>> PushSession::run() {
  BATON_CO_TRY(co_await open());
  while (true) {
    while (jobs_.empty() && !offer_ && !given_up_) {
      wake_.expires_after(context_.timeouts.prefill);
      const auto [woken] = co_await wake_.async_wait(kAwait);
      if (!woken) co_return fail(Code::kDeadlineExceeded, "the prefill does not go on");
    }
    if (given_up_) {
      (void)co_await channel_->write(wire::PushEnd{about_.grant_id, false, 0}, {}, kWriteTimeout);
      co_return Result<void>{};
    }
    if (jobs_.empty()) break;
    const PushJob job = next_job();
    const TimePoint began = context_.clock.now();
    BATON_CO_TRY(co_await push(job));
    busy_ += seconds_between(began, context_.clock.now());
  }
  if (want_state_) BATON_CO_TRY(co_await push_state());
  co_return co_await end();
}

// Where sending lags behind, what has come together of a rank goes together.
PushJob PushSession::next_job() {
  PushJob job = std::move(jobs_.front());
  jobs_.pop_front();
  for (auto next = jobs_.begin(); next != jobs_.end();) {
    if (next->planned != job.planned) break;
    if (next->rank != job.rank) {
      ++next;
      continue;
    }
    job.entries.count += next->entries.count;
    next = jobs_.erase(next);
  }
  return job;
}

std::unexpected<Status> PushSession::refused(const wire::Message& answer, std::string_view what) const {
  const auto* error = std::get_if<wire::ErrorReply>(&answer);
  return fail(error != nullptr ? error->code : Code::kDataLoss, "decode engine at {}:{}: {}", about_.host, about_.port,
              error != nullptr ? std::string_view(error->message) : what);
}

net::Task<Result<void>> PushSession::open() {
  BATON_CO_TRY_ASSIGN(
      auto stream, co_await connect_to_port(context_.options, context_.options.tls.enabled() ? &context_.tls : nullptr,
                                            about_.host, about_.port));
  channel_ = std::make_unique<transport::FrameChannel>(std::move(stream), /*payload_bytes_max=*/0);
  BATON_CO_TRY(co_await greet());
  BATON_CO_TRY(co_await channel_->write(wire::PushOpen{.grant_id = about_.grant_id,
                                                       .push_id = about_.push_id,
                                                       .token_count = about_.token_count,
                                                       .prompt = about_.prompt,
                                                       .has_state = about_.has_state},
                                        {}, kWriteTimeout));
  BATON_CO_TRY_ASSIGN(const auto opened, co_await channel_->read({.start = context_.timeouts.tail}));
  const auto* reply = std::get_if<wire::PushOpenReply>(&opened.message);
  if (reply == nullptr) co_return refused(opened.message, "no answer to PushOpen");
  skip_tokens_ = reply->skip_tokens;
  want_state_ = reply->want_state;
  co_return Result<void>{};
}

net::Task<Result<void>> PushSession::greet() {
  BATON_CO_TRY(co_await channel_->write(wire::Hello{context_.options.identity}, {}, kWriteTimeout));
  BATON_CO_TRY_ASSIGN(const auto greeting, co_await channel_->read({.start = context_.timeouts.tail}));
  const auto* hello = std::get_if<wire::HelloReply>(&greeting.message);
  if (hello == nullptr) co_return refused(greeting.message, "no greeting");
  const auto& theirs = hello->identity;
  auto agreed = wire::compare_identity(context_.options.identity, theirs, context_.options.allow);
  if (agreed) agreed = wire::check_claim(context_.options.peer_claim, theirs.layout.grid, "decode engine");
  if (!agreed) co_return fail(agreed.error().with_context("prefill engine refuses the hand-off"));
  BATON_CO_TRY_ASSIGN(plan_, context_.plans.plan(theirs.layout, about_.grant_id));
  co_return Result<void>{};
}

net::Task<Result<void>> PushSession::push(const PushJob& job) {
  const auto& step = job.planned->step();
  const PushSource source{.arena = context_.arena,
                          .token_count = step.token_count,
                          .first_place = step.begin_token / context_.holdings->block_tokens(),
                          .blocks = step.blocks};
  for (auto& frame : push_frames(*plan_, job.rank, job.entries,
                                 {.begin_token = step.begin_token,
                                  .end_token = step.end_token,
                                  .token_count = step.token_count,
                                  .skip_tokens = skip_tokens_})) {
    BATON_CO_TRY(co_await write(std::move(frame), source));
  }
  co_return Result<void>{};
}

net::Task<Result<void>> PushSession::push_state() {
  if (!offer_->state_slot) co_return fail(Code::kMismatch, "there is no recurrent state of the prompt");
  const PushSource source{.arena = context_.arena, .token_count = 1, .blocks = {}, .slot = *offer_->state_slot};
  for (int rank = 0; rank < context_.holdings->rank_count(); ++rank) {
    for (auto& frame : push_state_frames(*plan_, rank)) BATON_CO_TRY(co_await write(std::move(frame), source));
  }
  co_return Result<void>{};
}

net::Task<Result<void>> PushSession::write(wire::PushData frame, const PushSource& source) {
  frame.grant_id = about_.grant_id;
  const auto payload = load_frame(*context_.holdings, source, frame);
  BATON_CO_TRY(co_await channel_->write(frame, payload, kWriteTimeout));
  size_t bytes = 0;
  for (const auto& piece : payload) bytes += piece.size();
  context_.sent_bytes.add(static_cast<double>(bytes));
  co_return Result<void>{};
}

net::Task<Result<void>> PushSession::end() {
  BATON_CO_TRY(
      co_await channel_->write(wire::PushEnd{about_.grant_id, true, offer_->last_token_id}, {}, kWriteTimeout));
  BATON_CO_TRY_ASSIGN(const auto answer, co_await channel_->read({.start = kWriteTimeout}));
  const auto* reply = std::get_if<wire::PushEndReply>(&answer.message);
  if (reply == nullptr) co_return refused(answer.message, "no answer to PushEnd");
  if (!reply->complete) co_return fail(Code::kDataLoss, "the decode engine lacks a part of the KV");
  co_return Result<void>{};
}

}  // namespace baton::transfer
