// What the proxy reads: a client's body, then (behind a zero byte) an engine's answer to it. What goes to the engines
// and to the client is JSON, whatever came.
#include <algorithm>
#include <cstdlib>

#include "proxy/request_plan.h"
#include "wire/ordered_json.h"

namespace {

using namespace baton::proxy;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_answer(const RequestPlan& plan, const Json& answer, bool is_chunk) {
  Json ours = answer;
  const auto notes = adapt_answer(plan, ours, is_chunk, 3);
  require(Json::accept(ours.dump(-1, ' ', false, Json::error_handler_t::replace)));
  if (notes.is_error || notes.output_ids.empty()) return;
  const ResumePoint resume{.prompt = notes.prompt_ids, .outputs = notes.output_ids, .seed = notes.seed};
  require(Json::accept(prefill_body(plan, &resume)));
  require(Json::accept(decode_body(plan, Json(), &resume)));
  recount_usage(resume, ours);
  prepend_logprobs(notes.logprobs, ours);
  prepend_answer(answer, ours);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t cut = std::min(text.find('\0'), size);
  const std::string path = size % 2 == 0 ? "/v1/completions" : "/v1/chat/completions";
  const auto plan = plan_request(path, text.substr(0, cut));
  if (!plan) return 0;
  require(Json::accept(prefill_body(*plan)));
  const auto answer =
      baton::wire::parse_ordered_json(std::string_view(text).substr(std::min(cut + 1, size)), kMaxJsonDepth);
  require(Json::accept(decode_body(*plan, answer.value_or(Json()))));
  if (!answer) return 0;
  require(Json::accept(prefill_body(*plan, *answer, nullptr)));
  for (const bool is_chunk : {false, true}) check_answer(*plan, *answer, is_chunk);
  return 0;
}
