#include "proxy/request_plan.h"

#include <algorithm>

#include "wire/ordered_json.h"

namespace baton::proxy {
namespace {

constexpr double kImageLoad = 4096;  // about a thousand prompt tokens, however long its base64 is
constexpr double kTokenLoad = 4;     // bytes of text per token

bool flag(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

bool given(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && !found->is_null() && !(found->is_boolean() && !found->get<bool>());
}

int64_t integer(const Json& object, const char* name, int64_t otherwise) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

double estimate(const Json& value) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return text.starts_with("data:") ? kImageLoad : static_cast<double>(text.size());
  }
  if (value.is_number()) return kTokenLoad;
  double sum = 0;
  if (value.is_structured())
    for (const auto& each : value) sum += estimate(each);
  return sum;
}

bool several_prompts(const Json& body) {
  const auto prompt = body.find("prompt");
  if (prompt == body.end() || !prompt->is_array() || prompt->size() <= 1) return false;
  return !prompt->front().is_number();  // a list of numbers is one prompt
}

bool can_hand_off(const Json& body) {
  if (several_prompts(body) || integer(body, "n", 1) > 1 || integer(body, "best_of", 1) > 1) return false;
  if (given(body, "use_beam_search") || given(body, "prompt_logprobs")) return false;
  if (given(body, "echo") && given(body, "logprobs")) return false;
  return integer(body, "max_tokens", 1) != 0;
}

// The fields that carry token ids: removed, or null where the whole shape is always written out.
void hide_ids(Json& object, bool keep_null) {
  for (const char* name : {"token_ids", "prompt_token_ids"}) {
    const auto found = object.find(name);
    if (found == object.end()) continue;
    if (keep_null) {
      *found = nullptr;
    } else {
      object.erase(name);
    }
  }
}

void collect_ids(const Json& object, const char* name, std::vector<TokenId>& into) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_array()) return;
  for (const auto& id : *found)
    if (id.is_number_integer()) into.push_back(id.get<TokenId>());
}

void adapt_usage(Json& usage, int64_t cached_tokens, AnswerNotes& notes) {
  notes.prompt_tokens = integer(usage, "prompt_tokens", -1);
  notes.completion_tokens = integer(usage, "completion_tokens", -1);
  if (cached_tokens < 0) return;
  auto& details = usage["prompt_tokens_details"];
  if (!details.is_object()) details = Json::object();
  details["cached_tokens"] = cached_tokens;
}

Json history(const ResumePoint& resume) {
  Json ids = resume.prompt;
  for (const TokenId id : resume.outputs) ids.push_back(id);
  return ids;
}

void add_resume(const RequestPlan& plan, const ResumePoint& resume, Json& body) {
  if (!resume.baton && !plan.chat) {
    body["prompt"] = history(resume);
    return;
  }
  auto& params = body["kv_transfer_params"];
  if (!params.is_object()) params = Json::object();
  params["_vllm_ascend_recompute_token_ids"] = history(resume);
  if (!resume.baton) return;
  params["baton_resume_output_count"] = resume.outputs.size();
  if (resume.seed) params["baton_seed"] = *resume.seed;
}

// For engines that take what was generated for a prompt.
void lessen_budget(const RequestPlan& plan, int64_t generated, Json& body) {
  const char* const name = given(plan.body, "max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
  if (given(plan.body, name) || !plan.chat) {
    body[name] = std::max<int64_t>(1, integer(plan.body, name, 16) - generated);
  }
  if (given(plan.body, "min_tokens")) {
    body["min_tokens"] = std::max<int64_t>(0, integer(plan.body, "min_tokens", 0) - generated);
  }
}

// Arrays are joined, texts too; of anything else the later one counts.
void join_members(const Json& before, Json& after) {
  if (!before.is_object() || !after.is_object()) return;
  for (auto& [name, value] : after.items()) {
    const auto earlier = before.find(name);
    if (earlier == before.end()) continue;
    if (value.is_array() && earlier->is_array()) {
      value.insert(value.begin(), earlier->begin(), earlier->end());
    } else if (earlier->is_string() && (value.is_string() || value.is_null())) {
      value = earlier->get<std::string>() + (value.is_string() ? value.get<std::string>() : "");
    }
  }
}

Json* first_choice(Json& answer) {
  const auto choices = answer.find("choices");
  if (choices == answer.end() || !choices->is_array() || choices->empty() || !choices->front().is_object()) {
    return nullptr;
  }
  return &choices->front();
}

}  // namespace

void prepend_logprobs(const Json& logprobs, Json& answer) {
  Json* const choice = first_choice(answer);
  if (choice == nullptr || !logprobs.is_object()) return;
  auto& after = (*choice)["logprobs"];
  if (after.is_null()) {
    after = logprobs;
  } else {
    join_members(logprobs, after);
  }
}

void prepend_answer(const Json& before, Json& answer) {
  Json* const choice = first_choice(answer);
  if (choice == nullptr || !before.is_object()) return;
  if (const auto text = before.find("text"); text != before.end() && text->is_string() && choice->contains("text")) {
    (*choice)["text"] = text->get<std::string>() + choice->value("text", "");
  }
  if (const auto message = before.find("message"); message != before.end() && choice->contains("message")) {
    for (const char* name : {"content", "reasoning", "reasoning_content", "tool_calls"}) {
      const auto earlier = message->find(name);
      auto& now = (*choice)["message"];
      if (earlier == message->end() || earlier->is_null() || !now.is_object()) continue;
      if (!now.contains(name) || now[name].is_null()) {
        now[name] = *earlier;
      } else if (now[name].is_string() && earlier->is_string()) {
        now[name] = earlier->get<std::string>() + now[name].get<std::string>();
      } else if (now[name].is_array() && earlier->is_array()) {
        now[name].insert(now[name].begin(), earlier->begin(), earlier->end());
      }
    }
  }
  const auto ids = before.find("token_ids");
  if (ids != before.end() && ids->is_array() && choice->contains("token_ids") && (*choice)["token_ids"].is_array()) {
    auto& now = (*choice)["token_ids"];
    now.insert(now.begin(), ids->begin(), ids->end());
  }
}

void recount_usage(const ResumePoint& resume, Json& answer) {
  const auto usage = answer.find("usage");
  if (usage == answer.end() || !usage->is_object()) return;
  const auto outputs = static_cast<int64_t>(resume.outputs.size());
  if (usage->contains("prompt_tokens")) (*usage)["prompt_tokens"] = resume.prompt.size();
  if (usage->contains("completion_tokens"))
    (*usage)["completion_tokens"] = integer(*usage, "completion_tokens", 0) + outputs;
}

Result<RequestPlan> plan_request(std::string path, std::string_view body) {
  auto parsed = wire::parse_ordered_json(body, kMaxJsonDepth);
  if (!parsed) return fail(parsed.error().code(), "the body {}", parsed.error().message());
  RequestPlan plan{.path = std::move(path), .body = std::move(*parsed)};
  if (!plan.body.is_object()) return fail(Code::kInvalidArgument, "the body is not a JSON object");
  if (const auto stream = plan.body.find("stream");
      stream != plan.body.end() && !stream->is_boolean() && !stream->is_null())
    return fail(Code::kInvalidArgument, "'stream' must be true or false");
  plan.chat = plan.path.ends_with("/chat/completions");
  plan.stream = flag(plan.body, "stream");
  plan.wants_ids = flag(plan.body, "return_token_ids");
  if (const auto options = plan.body.find("stream_options"); options != plan.body.end() && options->is_object())
    plan.wants_usage = flag(*options, "include_usage");
  plan.hand_off = can_hand_off(plan.body);
  for (const char* name : {"prompt", "messages", "tools"})
    if (const auto found = plan.body.find(name); found != plan.body.end()) plan.load += estimate(*found);
  return plan;
}

std::string prefill_body(const RequestPlan& plan, const ResumePoint* resume) {
  return prefill_body(plan,
                      {{"do_remote_decode", true},
                       {"do_remote_prefill", false},
                       {"remote_engine_id", nullptr},
                       {"remote_block_ids", nullptr},
                       {"remote_host", nullptr},
                       {"remote_port", nullptr}},
                      resume);
}

std::string prefill_body(const RequestPlan& plan, Json kv_transfer_params, const ResumePoint* resume) {
  Json body = plan.body;
  // Baton's engines count from the first token ever generated.
  const auto tokens = 1 + (resume && resume->baton ? static_cast<int64_t>(resume->outputs.size()) : 0);
  body["kv_transfer_params"] = std::move(kv_transfer_params);
  body["stream"] = false;
  body["max_tokens"] = tokens;
  body["min_tokens"] = tokens;
  if (body.contains("max_completion_tokens")) body["max_completion_tokens"] = tokens;
  body.erase("stream_options");
  if (resume) add_resume(plan, *resume, body);
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string decode_body(const RequestPlan& plan, const Json& kv_transfer_params, const ResumePoint* resume) {
  Json body = plan.body;
  body.erase("kv_transfer_params");
  if (!kv_transfer_params.is_null()) body["kv_transfer_params"] = kv_transfer_params;
  if (resume) {
    if (!resume->baton) lessen_budget(plan, static_cast<int64_t>(resume->outputs.size()), body);
    add_resume(plan, *resume, body);
  }
  body["return_token_ids"] = true;
  if (plan.stream) {
    auto& options = body["stream_options"];
    if (!options.is_object() && !options.is_null()) return body.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (options.is_null()) options = Json::object();
    options["include_usage"] = true;
  }
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

AnswerNotes adapt_answer(const RequestPlan& plan, Json& answer, bool is_chunk, int64_t cached_tokens) {
  AnswerNotes notes;
  if (!answer.is_object()) return notes;
  notes.is_error = answer.contains("error") || (answer.contains("object") && answer["object"] == "error");
  if (notes.is_error) return notes;
  const bool keep_null = !is_chunk || !plan.chat;
  collect_ids(answer, "prompt_token_ids", notes.prompt_ids);
  if (!plan.wants_ids) hide_ids(answer, keep_null);
  bool has_choices = false;
  if (const auto choices = answer.find("choices"); choices != answer.end() && choices->is_array()) {
    for (auto& choice : *choices) {
      if (!choice.is_object()) continue;
      has_choices = true;
      const auto stop = choice.find("stop_reason");
      if (stop != choice.end() && stop->is_string() && *stop == "recomputed") {
        notes.recomputed = true;
        notes.logprobs = choice.value("logprobs", Json());
      }
      if (integer(choice, "index", 0) == 0) {
        collect_ids(choice, "prompt_token_ids", notes.prompt_ids);
        collect_ids(choice, "token_ids", notes.output_ids);
        notes.finished |= given(choice, "finish_reason");
      }
      if (!plan.wants_ids) hide_ids(choice, keep_null);
    }
  }
  const Json::json_pointer seed("/kv_transfer_params/baton_seed");
  if (notes.recomputed && answer.contains(seed) && answer[seed].is_string()) notes.seed = answer[seed];
  // Internal to the two engines.
  if (is_chunk) answer.erase("kv_transfer_params");
  if (const auto params = answer.find("kv_transfer_params"); params != answer.end()) *params = nullptr;
  if (const auto usage = answer.find("usage"); usage != answer.end() && usage->is_object()) {
    adapt_usage(*usage, cached_tokens, notes);
    notes.usage_chunk = is_chunk && !has_choices;
    notes.only_usage = notes.usage_chunk && !plan.wants_usage;
  }
  return notes;
}

std::string error_json(int status, std::string_view type, std::string_view message) {
  const Json error = {{"error", {{"message", message}, {"type", type}, {"param", nullptr}, {"code", status}}}};
  return error.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace baton::proxy
