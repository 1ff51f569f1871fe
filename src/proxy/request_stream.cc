// The events of a streamed answer, made the client's.
#include "proxy/engine_answer.h"
#include "proxy/request_fsm.h"

namespace baton::proxy {

void RequestFsm::on(const DecodeStreaming&) { actions_.push_back(ReadDecode{}); }

void RequestFsm::on(DecodeEvent& event) {
  if (saw_done_) {
    actions_.push_back(ReadDecode{});
    return;
  }
  if (event.data == "[DONE]") {
    if (!began_) return decode_failed({.message = "decode: a stream without an answer"});
    saw_done_ = true;
    instances_.note(*decode_, Outcome::kOk, now_);
    actions_.push_back(WriteEvent{"[DONE]"});
    actions_.push_back(EndStream{});
    return finish(200);
  }
  Json chunk = parse_answer(event.data);
  if (!chunk.is_object()) return decode_failed({.message = "decode: an event that is not JSON"});
  if (resume_ && !resume_->baton) recount_usage(*resume_, chunk);
  const AnswerNotes notes = adapt_answer(plan_, chunk, true, summary_.cached_tokens);
  if (notes.recomputed) {
    note_recomputed(notes, chunk, true);
    return resume_elsewhere(true);
  }
  if (notes.is_error) return stream_error(chunk, std::move(event.data));
  if (is_aborted(chunk) && (!began_ || can_resume()))
    return decode_failed({.message = "decode: the engine has let the request go"});
  restore_id(chunk);
  if (prompt_ids_.empty()) prompt_ids_ = notes.prompt_ids;
  output_ids_.insert(output_ids_.end(), notes.output_ids.begin(), notes.output_ids.end());
  if (notes.prompt_tokens >= 0) summary_.prompt_tokens = notes.prompt_tokens;
  if (notes.completion_tokens >= 0) summary_.completion_tokens = notes.completion_tokens;
  if (!notes.only_usage) write(chunk, notes);
  actions_.push_back(ReadDecode{});
}

// What is about the request passes on; what is about the engine is a failure like a broken connection.
void RequestFsm::stream_error(Json& chunk, std::string text) {
  const int code = error_code(chunk);
  const bool passes_on = is_about_the_request(code);
  const bool can_fail_over = !began_ || can_resume() || saw_finish_;
  if (!passes_on && can_fail_over) return decode_failed({.message = "decode: " + text.substr(0, 300)});
  if (!began_) {
    actions_.push_back(DropDecode{});
    return answer_about_the_request(json_answer(code, std::move(text)));
  }
  summary_.cut_after_first_byte = true;
  summary_.failure = "decode: an error event";
  restore_id(chunk);
  actions_.push_back(WriteEvent{chunk.dump(-1, ' ', false, Json::error_handler_t::replace)});
  actions_.push_back(ReadDecode{});
}

// Several chunks may bring the text of one token, the last of them its id. They leave together: were the stream cut
// between them, what goes on elsewhere would say the first ones again.
void RequestFsm::write(Json& chunk, const AnswerNotes& notes) {
  make_one_stream(chunk);
  const bool ends = has_finish_reason(chunk) && plan_.hand_off;
  std::string text = chunk.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (baton_ && plan_.hand_off && notes.output_ids.empty() && !ends && has_choice(chunk)) {
    held_.push_back(std::move(text));
    return;
  }
  first_byte();
  saw_finish_ = saw_finish_ || ends;
  wrote_usage_ = wrote_usage_ || notes.prompt_tokens >= 0;
  for (auto& held : held_) actions_.push_back(WriteEvent{std::move(held)});
  held_.clear();
  actions_.push_back(WriteEvent{std::move(text)});
}

// The first chunk and those of a resumed stream are changed more than pass_chunk knows.
bool RequestFsm::pass(std::string_view event, std::string& out) {
  const bool plain = stage_ == Stage::kDecode && began_ && !saw_done_ && !resume_ && generation_ <= 1 && held_.empty();
  if (!plain || first_head_.is_null()) return false;
  const size_t ids_before = output_ids_.size(), out_before = out.size();
  if (!pass_chunk(plan_, event, output_ids_, out)) return false;
  if (!baton_ || output_ids_.size() > ids_before) return true;
  out.resize(out_before);
  return false;
}

void RequestFsm::on(DecodeEnded& event) {
  if (event.how) return decode_failed({.message = "decode: the stream ended early"});
  decode_failed(failure_of("decode", event.how.error()));
}

}  // namespace baton::proxy
