#include "proxy/request_fsm.h"

#include <fmt/format.h>

#include <algorithm>

#include "proxy/engine_answer.h"

namespace baton::proxy {
namespace {

// Greedy, or seeded by the client: then no engine draws a seed that we would have to know.
bool has_its_seed(const RequestPlan& plan) {
  const auto seed = plan.body.find("seed"), temperature = plan.body.find("temperature");
  if (seed != plan.body.end() && !seed->is_null()) return true;
  return temperature != plan.body.end() && temperature->is_number() && temperature->get<double>() == 0;
}

}  // namespace

RequestFsm::RequestFsm(RequestPlan plan, std::string request_id, RetryPolicy policy, Instances& instances,
                       std::optional<DecodeFirst> decode_first, std::string drawn_seed)
    : plan_(std::move(plan)),
      request_id_(std::move(request_id)),
      policy_(policy),
      instances_(instances),
      decode_first_(std::move(decode_first)),
      drawn_seed_(std::move(drawn_seed)),
      seed_known_(has_its_seed(plan_)) {}

RequestFsm::~RequestFsm() {
  release_prefill();
  release_decode();
  release_kv();
}

std::vector<Action> RequestFsm::handle(Event event, TimePoint now) {
  now_ = now;
  actions_.clear();
  if (stage_ != Stage::kFinished) std::visit([this](auto& each) { on(each); }, event);
  if (actions_.empty()) actions_.push_back(Finish{});
  return std::move(actions_);
}

std::string RequestFsm::attempt_id() const {
  return generation_ <= 1 ? request_id_ : fmt::format("{}-retry{}", request_id_, generation_ - 1);
}

void RequestFsm::on(const Begin&) { start(); }

void RequestFsm::start() {
  if (plan_.hand_off && !decode_first_) return start_prefill();
  ++generation_;
  start_decode();
}

void RequestFsm::start_prefill() {
  stage_ = Stage::kPrefill;
  kv_params_.clear();
  kv_offered_ = false;
  if (!resume_) summary_.cached_tokens = -1;
  summary_.handed_off = false;
  // A prompt is not computed for nobody.
  if (!instances_.pick(Role::kDecode, now_, {})) return no_decode_left();
  ++generation_;
  const auto chosen = prefill_tries_ < policy_.max_retries + decode_tries_
                          ? instances_.pick(Role::kPrefill, now_, tried_prefill_)
                          : std::nullopt;
  if (!chosen) {
    // Every D can compute a prompt.
    summary_.colocated = true;
    return start_decode();
  }
  prefill_ = kv_at_ = chosen;
  kv_id_ = attempt_id();
  summary_.prefill = chosen;
  ++summary_.prefill_attempts;
  ++prefill_tries_;
  instances_.begin_prefill(*chosen, plan_.load);
  actions_.push_back(CallPrefill{*chosen, kv_id_, prefill_body(plan_, resume_point())});
}

void RequestFsm::on(PrefillAnswered& event) {
  if (decode_first_) return side_prefill_answered(event);
  if (!event.answer) return prefill_failed(failure_of("prefill", event.answer.error()));
  auto& answer = *event.answer;
  if (is_about_the_request(answer.status)) return answer_about_the_request(std::move(answer));
  Json body = answer.status == 200 ? parse_prefill_answer(answer.body, kv_params_) : Json();
  if (!body.is_object()) return prefill_failed(failure_of("prefill", std::move(answer), *prefill_));
  if (body.contains("error")) {
    const int code = error_code(body);
    if (is_about_the_request(code)) return answer_about_the_request(json_answer(code, std::move(answer.body)));
    return prefill_failed(failure_of("prefill", std::move(answer), *prefill_));
  }
  instances_.note(*prefill_, Outcome::kOk, now_);
  release_prefill();
  summary_.prefilled_at = now_;
  kv_offered_ = !kv_params_.empty();
  if (kv_offered_) {
    baton_ = body.contains("baton_offer_id");
    if (const auto seed = body.find("baton_seed"); seed != body.end() && seed->is_string()) seed_ = *seed;
  } else {
    release_kv();
  }
  const Json::json_pointer cached("/usage/prompt_tokens_details/cached_tokens");
  if (!resume_ && body.contains(cached) && body[cached].is_number_integer())
    summary_.cached_tokens = body[cached].get<int64_t>();
  start_decode();
}

RequestFsm::Failure RequestFsm::failure_of(const char* stage, const Status& status) {
  return {.outcome = outcome_of(status),
          .status = client_status_of(status),
          .message = fmt::format("{}: {}", stage, status.message())};
}

RequestFsm::Failure RequestFsm::failure_of(const char* stage, net::HttpResponse answer, InstanceId from) const {
  const Instance* const instance = instances_.find(from);
  const bool baton = instance != nullptr && instance->baton;
  Failure failure{.message = fmt::format("{}: status {}", stage, answer.status)};
  failure.busy = is_busy(answer, baton);
  if (failure.busy) failure.outcome = std::nullopt;
  if (answer.status == 503) failure.status = 503;
  failure.pass_on = std::move(answer);
  return failure;
}

// Whichever engine has said it; its KV, if any, is of no use.
void RequestFsm::answer_about_the_request(net::HttpResponse answer) {
  abort_prefill();
  // A stream that went on elsewhere is past its status.
  if (began_) return give_up({.status = answer.status, .message = "going on elsewhere: " + answer.body.substr(0, 300)});
  const int status = answer.status;
  actions_.push_back(Respond{std::move(answer)});
  finish(status);
}

void RequestFsm::prefill_failed(Failure failure) {
  const InstanceId failed = *prefill_;
  if (failure.outcome) instances_.note(failed, *failure.outcome, now_);
  release_prefill();
  release_kv();
  tried_prefill_.push_back(failed);
  // It may still be computing, or finish later with nobody to fetch the KV.
  if (failure.outcome == Outcome::kSlow) actions_.push_back(AbortPrefill{failed, kv_id_});
  if (instances_.pick(Role::kPrefill, now_, tried_prefill_)) return start_prefill();
  if (failure.busy) return give_up(failure);
  if (prefill_tries_ < policy_.max_retries && instances_.pick(Role::kPrefill, now_, {})) {
    tried_prefill_.clear();
    return retry_later(true);
  }
  start_prefill();  // finds none left: D alone
}

// The same instance again after a pause; the pause doubles with each attempt.
void RequestFsm::retry_later(bool prefill_stage) {
  stage_ = Stage::kDelay;
  retry_prefill_ = prefill_stage;
  const int attempts = prefill_stage ? prefill_tries_ : decode_tries_;
  actions_.push_back(Delay{policy_.retry_delay * (1 << std::clamp(attempts - 1, 0, 10))});
}

void RequestFsm::on(const DelayOver&) {
  if (stage_ != Stage::kDelay) return;
  if (std::exchange(waits_for_decode_, false)) {
    // What has failed may be tried again once it answers a probe.
    if (instances_.any_up(Role::kDecode)) tried_decode_.clear();
    return go_on_or_wait();
  }
  if (retry_prefill_) return start_prefill();
  ++generation_;
  start_decode();
}

void RequestFsm::start_decode() {
  stage_ = Stage::kDecode;
  const auto chosen = instances_.pick(Role::kDecode, now_, tried_decode_);
  if (!chosen) return no_decode_left();
  decode_ = chosen;
  summary_.decode = chosen;
  summary_.handed_off = kv_offered_;
  ++summary_.decode_attempts;
  ++decode_tries_;
  instances_.begin_decode(*chosen, plan_.load);
  side_params_ = nullptr;
  if (decode_first_ && plan_.hand_off) {
    const Json params = {{"do_remote_decode", false},
                         {"do_remote_prefill", true},
                         {"metaserver", fmt::format("{}?key={}", decode_first_->metaserver, metaserver_key())}};
    kv_params_ = params.dump();
  }
  know_seed();
  actions_.push_back(CallDecode{*chosen, attempt_id(), decode_body(plan_, kv_params_, resume_point())});
}

// An engine that draws the seed by itself would keep it to itself: it is told one.
void RequestFsm::know_seed() {
  baton_ = baton_ || instances_.find(*decode_)->baton;
  if (!baton_ || seed_known_ || kv_offered_ || decode_first_ || !plan_.hand_off || drawn_seed_.empty()) return;
  if (!seed_) seed_ = drawn_seed_;
  kv_params_ = Json{{"baton_seed", *seed_}}.dump();
}

void RequestFsm::on(DecodeAnswered& event) {
  if (!event.answer) return decode_failed(failure_of("decode", event.answer.error()));
  auto& answer = *event.answer;
  if (is_about_the_request(answer.status)) return answer_about_the_request(std::move(answer));
  if (answer.status != 200) return decode_failed(failure_of("decode", std::move(answer), *decode_));
  whole_answer(answer);
}

void RequestFsm::whole_answer(net::HttpResponse& answer) {
  AnswerNotes quick;
  if (generation_ <= 1 && !resume_ && pass_answer(plan_, answer.body, summary_.cached_tokens, quick, answer.body))
    return good_answer(std::move(answer), quick);
  Json body = parse_answer(answer.body);
  if (!body.is_object()) return decode_failed({.message = "decode: a 200 without a JSON body"});
  if (!has_choice(body) && !body.contains("error") && body.value("object", "") != "error")
    return decode_failed({.message = "decode: a 200 without a choice"});
  if (resume_ && !resume_->baton) recount_usage(*resume_, body);
  const AnswerNotes notes = adapt_answer(plan_, body, false, summary_.cached_tokens);
  if (notes.recomputed) {
    note_recomputed(notes, body, false);
    return resume_elsewhere(true);
  }
  if (notes.is_error) {
    const int code = error_code(body);
    if (is_about_the_request(code)) return answer_about_the_request(json_answer(code, std::move(answer.body)));
    return decode_failed({.message = "decode: an error inside a 200"});
  }
  if (is_aborted(body)) return decode_failed({.message = "decode: the engine has let the request go"});
  restore_id(body);
  make_one_answer(body);
  answer.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  good_answer(std::move(answer), notes);
}

void RequestFsm::good_answer(net::HttpResponse answer, const AnswerNotes& notes) {
  prompt_ids_ = notes.prompt_ids;
  output_ids_ = notes.output_ids;
  summary_.prompt_tokens = notes.prompt_tokens;
  summary_.completion_tokens = notes.completion_tokens;
  instances_.note(*decode_, Outcome::kOk, now_);
  first_byte();
  actions_.push_back(Respond{std::move(answer)});
  finish(200);
}

// The engine's answer carries the id of the attempt; the client knows its own.
void RequestFsm::restore_id(Json& answer) const {
  const auto id = answer.find("id");
  if (generation_ <= 1 || id == answer.end() || !id->is_string()) return;
  const auto& said = id->get_ref<const std::string&>();
  const std::string attempt = attempt_id();
  if (said.ends_with(attempt)) *id = said.substr(0, said.size() - attempt.size()) + request_id_;
}

void RequestFsm::decode_failed(Failure failure) {
  const InstanceId failed = *decode_;
  if (failure.outcome) instances_.note(failed, *failure.outcome, now_);
  release_decode();
  actions_.push_back(DropDecode{});
  drop_side_prefill(/*abort=*/true);
  abort_prefill();
  held_.clear();
  if (began_) return stream_failed(std::move(failure), failed);
  first_head_ = nullptr;
  tried_decode_.push_back(failed);
  const bool another = instances_.pick(Role::kDecode, now_, tried_decode_).has_value();
  const bool left = decode_tries_ < policy_.max_retries;
  if (!left || (!another && (failure.busy || !instances_.pick(Role::kDecode, now_, {})))) return give_up(failure);
  tried_prefill_.clear();
  if (!another) {
    tried_decode_.clear();
    return retry_later(plan_.hand_off && !decode_first_);
  }
  start();
}

void RequestFsm::on(const ClientGone&) {
  actions_.push_back(DropDecode{});
  // While D has not answered it may not have fetched: P is told, so that it need not wait for its lease to end.
  if (decode_first_) {
    drop_side_prefill(/*abort=*/true);
  } else if (prefill_) {
    actions_.push_back(AbortPrefill{*prefill_, kv_id_});
  } else {
    abort_prefill();
  }
  summary_.failure = "client gone";
  finish(499);
}

void RequestFsm::first_byte() {
  kv_offered_ = false;
  if (!decode_first_) release_kv();
  if (!std::exchange(began_, true)) summary_.first_byte_at = now_;
}

void RequestFsm::release_prefill() {
  if (prefill_) instances_.end_prefill(*std::exchange(prefill_, std::nullopt), plan_.load);
}
void RequestFsm::release_decode() {
  if (decode_) instances_.end_decode(*std::exchange(decode_, std::nullopt), plan_.load);
}
void RequestFsm::release_kv() {
  if (kv_at_) instances_.release_kv(*std::exchange(kv_at_, std::nullopt), plan_.load);
}

void RequestFsm::abort_prefill() {
  if (kv_at_ && std::exchange(kv_offered_, false)) actions_.push_back(AbortPrefill{*kv_at_, kv_id_});
  release_kv();
}

void RequestFsm::give_up(const Failure& failure) {
  summary_.failure = failure.message;
  if (began_) {
    summary_.cut_after_first_byte = true;
    actions_.push_back(WriteEvent{error_json(failure.status, type_of(failure.status), failure.message)});
    actions_.push_back(WriteEvent{"[DONE]"});
    actions_.push_back(EndStream{});
    return finish(200);
  }
  // An engine's own words are passed on when they are an error in JSON, or "busy" in whatever form.
  if (failure.pass_on && failure.pass_on->status >= 400 && (failure.busy || Json::accept(failure.pass_on->body))) {
    auto response = *failure.pass_on;
    if ((response.status == 503 || response.status == 429) && !response.headers.get("Retry-After"))
      response.headers.add("Retry-After", "1");
    const int status = response.status;
    actions_.push_back(Respond{std::move(response)});
    return finish(status);
  }
  actions_.push_back(Respond{error_response(failure.status, failure.message)});
  finish(failure.status);
}

void RequestFsm::finish(int status) {
  release_prefill();
  release_decode();
  release_kv();
  summary_.status = status;
  stage_ = Stage::kFinished;
  actions_.push_back(Finish{});
}

}  // namespace baton::proxy
