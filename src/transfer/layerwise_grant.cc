#include "transfer/layerwise_grant.h"

#include <algorithm>

namespace baton::transfer {
namespace {

constexpr size_t kEnginesMax = 16;  // that one grant has seen

}  // namespace

Result<void> Grant::check(const wire::PushOpen& open) const {
  if (open.token_count != pull_->token_count) {
    return fail(Code::kMismatch, "tokens: wanted {}, the prefill engine computed {}", pull_->token_count,
                open.token_count);
  }
  if (open.prompt != pull_->prompt) return fail(Code::kMismatch, "the KV pushed is that of another prompt");
  if (pull_->state_slot && !open.has_state) return fail(Code::kMismatch, "the push has no recurrent state");
  return {};
}

// The latest one writes: the proxy asks another engine only when one has failed.
Result<void> Grant::take_over(uint64_t push_id, int process_count) {
  if (push_id == 0 || superseded_.contains(push_id)) {
    return fail(Code::kNotFound, "no such push: another prefill engine has taken over");
  }
  if (superseded_.size() >= kEnginesMax) return fail(Code::kResourceExhausted, "too many prefill engines for a grant");
  if (push_id_ != 0) superseded_.insert(push_id_);
  push_id_ = push_id;
  process_count_ = process_count;
  legs_.clear();
  lost_.reset();
  return {};
}

Result<wire::PushOpenReply> Grant::open(uint64_t connection, const wire::PushOpen& open, const PushWriter& writer,
                                        std::shared_ptr<const ReshardPlan> plan) {
  BATON_TRY(check(open));
  if (open.push_id != push_id_ || push_id_ == 0) BATON_TRY(take_over(open.push_id, writer.process_count));
  const bool again = std::ranges::any_of(legs_, [&](const auto& leg) { return leg.second.process == writer.process; });
  if (again || all_known() || writer.process_count != process_count_) {
    return fail(Code::kMismatch, "process {:x} of {} of the prefill engine opens its push beside {} of {}",
                writer.process, writer.process_count, legs_.size(), process_count_);
  }
  legs_.emplace(connection, Leg{.leg = PushLeg(std::move(plan), *pull_), .process = writer.process});
  if (all_known()) {
    std::vector<const ReshardPlan*> plans;
    for (const auto& [id, leg] : legs_) plans.push_back(&leg.leg.plan());
    if (const auto missing = ReshardPlan::missing(plans)) {
      lost_ = Status(Code::kMismatch, fmt::format("{} of the prefill engine", *missing));
      return fail(*lost_);
    }
  }
  return wire::PushOpenReply{.grant_id = pull_->params.baton_offer_id,
                             .skip_tokens = pull_->skip_tokens,
                             .want_state = pull_->state_slot.has_value()};
}

PushLeg* Grant::leg(uint64_t connection) {
  const auto found = legs_.find(connection);
  return found == legs_.end() || found->second.ended ? nullptr : &found->second.leg;
}

void Grant::end(uint64_t connection) {
  const auto found = legs_.find(connection);
  if (found != legs_.end()) found->second.ended = true;
}

bool Grant::lose(uint64_t connection, const Status& why) {
  if (leg(connection) == nullptr) return false;
  if (!lost_) lost_ = why;
  return true;
}

bool Grant::finished() const {
  return all_known() && std::ranges::all_of(legs_, [](const auto& leg) { return leg.second.ended; });
}

std::string Grant::writers() const {
  const auto ended = std::ranges::count_if(legs_, [](const auto& leg) { return leg.second.ended; });
  return fmt::format("{} of {} processes of the prefill engine write, {} have ended", legs_.size(), process_count_,
                     ended);
}

Result<void> Grant::outcome() const {
  if (lost_) return fail(*lost_);
  if (std::ranges::all_of(legs_, [](const auto& leg) { return leg.second.leg.complete(); })) return {};
  return fail(Code::kDataLoss, "the push ended before all of the KV had come");
}

int64_t Grant::valid_tokens() const {
  const int64_t least = std::min(pull_->skip_tokens, pull_->token_count);
  if (least == pull_->token_count) return least;
  std::vector<const ReshardPlan*> plans;
  int64_t valid = pull_->token_count;
  for (const auto& [connection, leg] : legs_) {
    valid = std::min(valid, leg.leg.valid_tokens());
    plans.push_back(&leg.leg.plan());
  }
  if (!all_known() || ReshardPlan::missing(plans)) return least;
  return valid;
}

bool Grant::state_valid() const {
  return pull_->state_slot && all_known() &&
         std::ranges::all_of(legs_, [](const auto& leg) { return leg.second.leg.state_complete(); });
}

}  // namespace baton::transfer
