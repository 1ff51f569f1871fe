// D first: the decode engine has room for a request and calls the metaserver; the prefill that fills it is a side story
// of the decode call, which goes on all the time.
#include <fmt/format.h>

#include "proxy/request_fsm.h"
#include "wire/ordered_json.h"

namespace baton::proxy {

// One for each attempt: a call of an engine that was given up is nobody's.
std::string RequestFsm::metaserver_key() const { return fmt::format("{}-{}", decode_first_->key, generation_); }

void RequestFsm::on(const MetaserverCalled& event) {
  if (!decode_first_ || stage_ != Stage::kDecode || !decode_ || event.key != metaserver_key() || prefill_) {
    actions_.push_back(AnswerMetaserver{404, "no request waits for this call"});
    return;
  }
  side_params_ = event.params;
  tried_prefill_.clear();
  prefill_tries_ = 0;
  if (const auto seed = side_params_.find("baton_seed"); seed != side_params_.end() && seed->is_string()) {
    seed_ = *seed;
    baton_ = true;
  }
  call_side_prefill();
}

void RequestFsm::call_side_prefill() {
  const auto chosen =
      prefill_tries_ < policy_.max_retries ? instances_.pick(Role::kPrefill, now_, tried_prefill_) : std::nullopt;
  if (!chosen) {
    // D has the prompt: it computes it itself.
    summary_.colocated = true;
    actions_.push_back(AnswerMetaserver{503, "no prefill instance is available"});
    return;
  }
  prefill_ = kv_at_ = chosen;
  kv_id_ = attempt_id();
  summary_.prefill = chosen;
  ++summary_.prefill_attempts;
  ++prefill_tries_;
  instances_.begin_prefill(*chosen, plan_.load);
  actions_.push_back(CallPrefill{*chosen, kv_id_, prefill_body(plan_, side_params_.dump(), resume_point())});
}

void RequestFsm::side_prefill_answered(PrefillAnswered& event) {
  if (!prefill_) return;
  if (!event.answer) return side_prefill_failed(failure_of("prefill", event.answer.error()));
  auto& answer = *event.answer;
  const Json body = wire::parse_ordered_json(answer.body, kMaxJsonDepth, UINT64_MAX).value_or(Json());
  if (answer.status != 200 || !body.is_object() || body.contains("error")) {
    return side_prefill_failed(failure_of("prefill", std::move(answer), *prefill_));
  }
  instances_.note(*prefill_, Outcome::kOk, now_);
  release_prefill();
  release_kv();
  summary_.prefilled_at = now_;
  summary_.handed_off = true;
  const Json::json_pointer cached("/usage/prompt_tokens_details/cached_tokens");
  if (!resume_ && body.contains(cached) && body[cached].is_number_integer())
    summary_.cached_tokens = body[cached].get<int64_t>();
  actions_.push_back(AnswerMetaserver{200, ""});
}

void RequestFsm::side_prefill_failed(Failure failure) {
  const InstanceId failed = *prefill_;
  // What P says about the request, D would have said; D's own words are the client's.
  const int status = failure.pass_on ? failure.pass_on->status : 0;
  const bool about_the_request = status >= 400 && status < 500 && !failure.busy;
  if (failure.outcome && !about_the_request) instances_.note(failed, *failure.outcome, now_);
  release_prefill();
  release_kv();
  if (failure.outcome == Outcome::kSlow) actions_.push_back(AbortPrefill{failed, kv_id_});
  tried_prefill_.push_back(failed);
  if (!about_the_request && instances_.pick(Role::kPrefill, now_, tried_prefill_)) return call_side_prefill();
  actions_.push_back(AnswerMetaserver{502, failure.message});
}

void RequestFsm::drop_side_prefill(bool abort) {
  if (!decode_first_ || !prefill_) return;
  if (abort) actions_.push_back(AbortPrefill{*prefill_, kv_id_});
  actions_.push_back(DropPrefill{});
  release_prefill();
  release_kv();
}

}  // namespace baton::proxy
