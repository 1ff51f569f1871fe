// Requests that go on elsewhere amid their answer: by token ids, so that the client sees one answer.
#include "proxy/engine_answer.h"
#include "proxy/request_fsm.h"

namespace baton::proxy {
namespace {

// Every resume brings a token at least, so that this is no bound that a request meets in earnest.
constexpr int kResumesMax = 10000;
constexpr Duration kResumePoll = std::chrono::milliseconds(50);

}  // namespace

// What comes next must be what would have come: its tokens, their order and the noise are known.
bool RequestFsm::can_resume() const {
  return plan_.hand_off && plan_.stream && baton_ && !prompt_ids_.empty() && !output_ids_.empty() &&
         (seed_known_ || seed_.has_value());
}

void RequestFsm::note_recomputed(const AnswerNotes& notes, Json& answer, bool is_chunk) {
  baton_ = notes.seed.has_value();
  if (notes.seed) seed_ = notes.seed;
  if (!resume_ && summary_.cached_tokens < 0) {
    const Json::json_pointer cached("/usage/prompt_tokens_details/cached_tokens");
    if (answer.contains(cached) && answer[cached].is_number_integer()) summary_.cached_tokens = answer[cached];
  }
  if (prompt_ids_.empty()) prompt_ids_ = notes.prompt_ids;
  if (is_chunk) {
    output_ids_.insert(output_ids_.end(), notes.output_ids.begin(), notes.output_ids.end());
    return;
  }
  const Json whole = answer;  // of the last engine alone
  prepend_logprobs(logprobs_, answer);
  const Json::json_pointer logprobs("/choices/0/logprobs");
  logprobs_ = answer.contains(logprobs) ? answer[logprobs] : Json();
  if (baton_) {
    output_ids_ = notes.output_ids;  // all of them, those resumed too
    return;
  }
  output_ids_.insert(output_ids_.end(), notes.output_ids.begin(), notes.output_ids.end());
  Json joined = whole;
  prepend_answer(before_, joined);
  before_ = joined["choices"][0];
}

// The KV that D had is gone: all tokens are prefilled again, wherever there is room.
void RequestFsm::resume_elsewhere(bool recomputed) {
  if (decode_) {
    instances_.note(*decode_, Outcome::kOk, now_);
    release_decode();
    actions_.push_back(DropDecode{});
    drop_side_prefill(/*abort=*/true);
  }
  const bool from_scratch = output_ids_.empty() && !began_;
  if (from_scratch) abort_prefill();
  kv_offered_ = false;
  release_kv();
  ++summary_.resumes;
  summary_.recomputes += recomputed;
  if (!from_scratch && (prompt_ids_.empty() || output_ids_.empty() || !plan_.hand_off)) {
    return give_up({.status = 503,
                    .message = "decode: out of KV memory; a request with several prompts or choices, or without token "
                               "ids, can't go on elsewhere"});
  }
  if (summary_.resumes > kResumesMax) return give_up({.status = 503, .message = "decode: out of KV memory"});
  if (!from_scratch) {
    resume_ = ResumePoint{.prompt = prompt_ids_, .outputs = output_ids_, .seed = seed_, .baton = baton_};
  }
  tried_prefill_.clear();
  if (recomputed) tried_decode_.clear();
  prefill_tries_ = decode_tries_ = 0;
  start();
}

// Chunks of the engine that goes on carry what the first one has told the client.
void RequestFsm::make_one_stream(Json& chunk) {
  if (first_head_.is_null()) {
    for (const char* name : {"id", "object", "created", "model"})
      if (chunk.contains(name)) first_head_[name] = chunk[name];
    return;
  }
  if (!resume_) return;
  for (const auto& [name, value] : first_head_.items())
    if (chunk.contains(name)) chunk[name] = value;
  if (resume_->baton || !plan_.chat || !chunk.contains("choices")) return;
  for (auto& choice : chunk["choices"])
    if (choice.is_object() && choice.contains("delta") && choice["delta"].is_object()) choice["delta"].erase("role");
}

bool RequestFsm::can_do_without() const {
  if (stage_ == Stage::kPrefill || !began_) return true;
  return decode_ && can_resume() && instances_.pick(Role::kDecode, now_, std::span(&*decode_, 1));
}

// The client has begun to read. Several fruitless attempts in a row end it: the request itself may be what breaks
// engines.
void RequestFsm::stream_failed(Failure failure, InstanceId failed) {
  if (saw_finish_) return complete_stream(failure);
  if (!can_resume()) return give_up(failure);
  if (!resume_ || output_ids_.size() > resume_->outputs.size()) {
    fruitless_ = 0;
    tried_decode_.clear();
    give_up_at_ = now_ + policy_.resume_wait;
  }
  if (++fruitless_ > policy_.max_retries) return give_up(failure);
  instances_.doubt(failed);
  tried_decode_.push_back(failed);
  failure_ = std::move(failure);
  go_on_or_wait();
}

void RequestFsm::no_decode_left() {
  abort_prefill();
  Failure failure{.status = 503, .message = "no decode instance is available"};
  if (!began_ || !can_resume()) return give_up(failure);
  if (!failure_) give_up_at_ = now_ + policy_.resume_wait;
  failure_ = std::move(failure);
  go_on_or_wait();
}

void RequestFsm::go_on_or_wait() {
  if (instances_.pick(Role::kDecode, now_, tried_decode_)) return resume_elsewhere(false);
  if (now_ >= give_up_at_) return give_up(*failure_);
  stage_ = Stage::kDelay;
  waits_for_decode_ = true;
  actions_.push_back(Delay{kResumePoll});
}

// Only what follows the last token is missing: the proxy knows it too.
void RequestFsm::complete_stream(const Failure& failure) {
  if (plan_.wants_usage && !wrote_usage_) {
    if (prompt_ids_.empty() || !first_head_.is_object()) return give_up(failure);
    Json chunk = first_head_;
    if (!chunk.contains("object")) chunk["object"] = plan_.chat ? "chat.completion.chunk" : "text_completion";
    chunk["choices"] = Json::array();
    const size_t prompt = prompt_ids_.size(), outputs = output_ids_.size();
    chunk["usage"] = {{"prompt_tokens", prompt}, {"total_tokens", prompt + outputs}, {"completion_tokens", outputs}};
    (void)adapt_answer(plan_, chunk, true, summary_.cached_tokens);
    actions_.push_back(WriteEvent{chunk.dump(-1, ' ', false, Json::error_handler_t::replace)});
  }
  summary_.failure = failure.message;
  actions_.push_back(WriteEvent{"[DONE]"});
  actions_.push_back(EndStream{});
  finish(200);
}

void RequestFsm::make_one_answer(Json& answer) {
  prepend_logprobs(logprobs_, answer);
  if (resume_ && !resume_->baton) prepend_answer(before_, answer);
}

}  // namespace baton::proxy
