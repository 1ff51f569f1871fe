// Requests that go on elsewhere amid their answer: by token ids, so that the client sees one answer.
#include "proxy/request_fsm.h"

namespace baton::proxy {
namespace {

// Every resume brings a token at least, so that this is no bound that a request meets in earnest.
constexpr int kResumesMax = 10000;

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

// The answer was complete when the stream broke: to go on would be to say more than it has. What still misses, usage
// and the end, is known here; false where it isn't. (Of several choices, which are never handed over, it isn't.)
bool RequestFsm::end_behind_last_word() {
  if (!saw_finish_ || !plan_.hand_off) return false;
  if (plan_.wants_usage && !saw_usage_) {
    if (prompt_ids_.empty() || first_head_.is_null()) return false;
    summary_.prompt_tokens = std::ssize(prompt_ids_);
    summary_.completion_tokens = std::ssize(output_ids_);
    Json chunk = first_head_;
    chunk["object"] = plan_.chat ? "chat.completion.chunk" : "text_completion";
    chunk["choices"] = Json::array();
    chunk["usage"] = {{"prompt_tokens", summary_.prompt_tokens},
                      {"total_tokens", summary_.prompt_tokens + summary_.completion_tokens},
                      {"completion_tokens", summary_.completion_tokens}};
    if (summary_.cached_tokens >= 0) {
      chunk["usage"]["prompt_tokens_details"] = {{"cached_tokens", summary_.cached_tokens}};
    }
    actions_.push_back(WriteEvent{chunk.dump(-1, ' ', false, Json::error_handler_t::replace)});
  }
  actions_.push_back(WriteEvent{"[DONE]"});
  actions_.push_back(EndStream{});
  finish(200);
  return true;
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
  tried_decode_.clear();
  prefill_tries_ = decode_tries_ = 0;
  start();
}

// Chunks of the engine that goes on carry what the first one has told the client.
void RequestFsm::make_one_stream(Json& chunk) {
  if (first_head_.is_null()) {
    for (const char* name : {"id", "created", "model"})
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

void RequestFsm::make_one_answer(Json& answer) {
  prepend_logprobs(logprobs_, answer);
  if (resume_ && !resume_->baton) prepend_answer(before_, answer);
}

}  // namespace baton::proxy
