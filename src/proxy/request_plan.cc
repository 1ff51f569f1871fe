#include "proxy/request_plan.h"

#include <algorithm>

#include "proxy/json_scan.h"
#include "wire/ordered_json.h"

namespace baton::proxy {
namespace {

constexpr std::string_view kPromptMembers[] = {"prompt", "messages", "tools"};
// What the proxy itself reads; of anything else it knows the place alone.
constexpr std::string_view kReadMembers[] = {
    "stream", "stream_options", "return_token_ids", "n",    "best_of",     "use_beam_search", "prompt_logprobs",
    "echo",   "logprobs",       "max_tokens",       "seed", "temperature", "min_tokens",      "max_completion_tokens"};

template <size_t N>
bool is_one_of(const std::string_view (&names)[N], std::string_view name) {
  return std::ranges::find(names, name) != std::end(names);
}

// A body made of the client's: members replaced in their places, added behind them, or left out.
class BodyWriter {
 public:
  explicit BodyWriter(const RequestPlan& plan) : plan_(plan) {}
  // The first word about a member counts. `name` must live as long as this.
  void set(std::string_view name, std::string json) {
    if (std::ranges::find(edits_, name, &Edit::first) == edits_.end()) edits_.emplace_back(name, std::move(json));
  }
  void erase(std::string_view name) { edits_.emplace_back(name, ""); }
  bool has(std::string_view name) const {
    return std::ranges::any_of(plan_.members, [&](const auto& each) { return plan_.name_of(each) == name; });
  }

  std::string text() {
    size_t bytes = plan_.text.size() + 64;
    for (const auto& [name, json] : edits_) bytes += name.size() + json.size() + 4;
    std::string text;
    text.reserve(bytes);
    for (const auto& member : plan_.members) {
      const auto name = plan_.name_of(member);
      const auto edit = std::ranges::find(edits_, name, &Edit::first);
      if (edit == edits_.end()) {
        add(text, name, plan_.value_of(member));
      } else {
        add(text, name, std::exchange(edit->second, {}));
      }
    }
    for (const auto& [name, json] : edits_) add(text, name, json);
    text += text.empty() ? "{}" : "}";
    return text;
  }

 private:
  using Edit = std::pair<std::string_view, std::string>;
  static void add(std::string& text, std::string_view name, std::string_view json) {
    if (json.empty()) return;
    text += text.empty() ? "{\"" : ",\"";
    text.append(name).append("\":").append(json);
  }

  const RequestPlan& plan_;
  std::vector<Edit> edits_;  // an empty text: left out, or written already
};

std::string dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

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

bool is_number(std::string_view value) { return value[0] == '-' || (value[0] >= '0' && value[0] <= '9'); }

bool several_prompts(const RequestPlan& plan) {
  for (const auto& member : plan.members) {
    if (plan.name_of(member) != "prompt") continue;
    const auto elements = scan_array(plan.value_of(member), 2);
    return elements && elements->size() > 1 && !is_number(elements->front());  // a list of numbers is one prompt
  }
  return false;
}

bool can_hand_off(const RequestPlan& plan) {
  const Json& body = plan.body;
  if (several_prompts(plan) || integer(body, "n", 1) > 1 || integer(body, "best_of", 1) > 1) return false;
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

Json history(const ResumePoint& resume) {
  Json ids = resume.prompt;
  for (const TokenId id : resume.outputs) ids.push_back(id);
  return ids;
}

// kv_transfer_params as text, with what resumes the request; or the prompt, for engines that know of none.
void write_resume(const RequestPlan& plan, const ResumePoint& resume, std::string_view kv_transfer_params,
                  BodyWriter& body) {
  if (!resume.baton && !plan.chat) {
    body.set("prompt", history(resume).dump());
    return;
  }
  Json params = wire::parse_ordered_json(kv_transfer_params, kMaxJsonDepth, UINT64_MAX).value_or(Json::object());
  params["_vllm_ascend_recompute_token_ids"] = history(resume);
  if (resume.baton) {
    params["baton_resume_output_count"] = resume.outputs.size();
    if (resume.seed) params["baton_seed"] = *resume.seed;
  }
  body.set("kv_transfer_params", dump(params));
}

// For engines that take what was generated for a prompt.
void lessen_budget(const RequestPlan& plan, int64_t generated, BodyWriter& body) {
  const char* const name = given(plan.body, "max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
  if (given(plan.body, name) || !plan.chat)
    body.set(name, std::to_string(std::max<int64_t>(1, integer(plan.body, name, 16) - generated)));
  if (given(plan.body, "min_tokens"))
    body.set("min_tokens", std::to_string(std::max<int64_t>(0, integer(plan.body, "min_tokens", 0) - generated)));
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

// Where the members of plan.text stand. False: the scanner does not take it.
bool find_members(RequestPlan& plan) {
  const auto members = scan_object(plan.text, kMaxJsonDepth);
  if (!members) return false;
  plan.body = Json::object();
  const auto place = [&](std::string_view part) {
    return RequestPlan::Place{.offset = static_cast<size_t>(part.data() - plan.text.data()), .size = part.size()};
  };
  for (const auto& member : *members) {
    if (is_one_of(kPromptMembers, member.key)) plan.load += member.text_bytes;
    plan.members.push_back({.name = place(member.key), .value = place(member.value)});
    if (!is_one_of(kReadMembers, member.key)) continue;
    auto value = wire::parse_ordered_json(member.value, kMaxJsonDepth);
    if (value) plan.body.push_back({std::string(member.key), std::move(*value)});
  }
  return true;
}

// The thorough way, which says what is wrong, and writes what is only odd (a key twice, an escape in one) anew.
Result<void> parse_members(RequestPlan& plan) {
  auto parsed = wire::parse_ordered_json(plan.text, kMaxJsonDepth);
  if (!parsed) return fail(parsed.error().code(), "the body {}", parsed.error().message());
  if (!parsed->is_object()) return fail(Code::kInvalidArgument, "the body is not a JSON object");
  plan.text.clear();
  for (const auto& [name, value] : parsed->items()) {
    const std::string key = dump(name), json = dump(value);
    const RequestPlan::Place at{.offset = plan.text.size() + 1, .size = key.size() - 2};
    plan.members.push_back({.name = at, .value = {.offset = plan.text.size() + key.size(), .size = json.size()}});
    plan.text += key + json;
    if (is_one_of(kPromptMembers, name)) plan.load += static_cast<double>(json.size());
  }
  plan.body = std::move(*parsed);
  return {};
}

}  // namespace

void adapt_usage(Json& usage, int64_t cached_tokens, AnswerNotes& notes) {
  notes.prompt_tokens = integer(usage, "prompt_tokens", -1);
  notes.completion_tokens = integer(usage, "completion_tokens", -1);
  if (cached_tokens < 0) return;
  auto& details = usage["prompt_tokens_details"];
  if (!details.is_object()) details = Json::object();
  details["cached_tokens"] = cached_tokens;
}

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

Result<RequestPlan> plan_request(std::string path, std::string body) {
  RequestPlan plan{.path = std::move(path), .body = {}, .text = {}, .members = {}};
  plan.text = std::move(body);
  if (!find_members(plan)) BATON_TRY(parse_members(plan));
  if (const auto stream = plan.body.find("stream");
      stream != plan.body.end() && !stream->is_boolean() && !stream->is_null())
    return fail(Code::kInvalidArgument, "'stream' must be true or false");
  plan.chat = plan.path.ends_with("/chat/completions");
  plan.stream = flag(plan.body, "stream");
  plan.wants_ids = flag(plan.body, "return_token_ids");
  if (const auto options = plan.body.find("stream_options"); options != plan.body.end() && options->is_object())
    plan.wants_usage = flag(*options, "include_usage");
  plan.hand_off = can_hand_off(plan);
  return plan;
}

std::string prefill_body(const RequestPlan& plan, const ResumePoint* resume) {
  return prefill_body(plan,
                      R"({"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,)"
                      R"("remote_block_ids":null,"remote_host":null,"remote_port":null})",
                      resume);
}

std::string prefill_body(const RequestPlan& plan, std::string_view kv_transfer_params, const ResumePoint* resume) {
  BodyWriter body(plan);
  // Baton's engines count from the first token ever generated.
  const std::string tokens = std::to_string(1 + (resume && resume->baton ? resume->outputs.size() : 0));
  if (resume) write_resume(plan, *resume, kv_transfer_params, body);
  body.set("kv_transfer_params", std::string(kv_transfer_params));
  body.set("stream", "false");
  body.set("max_tokens", tokens);
  body.set("min_tokens", tokens);
  if (body.has("max_completion_tokens")) body.set("max_completion_tokens", tokens);
  body.erase("stream_options");
  return body.text();
}

std::string decode_body(const RequestPlan& plan, std::string_view kv_transfer_params, const ResumePoint* resume) {
  BodyWriter body(plan);
  if (resume) {
    if (!resume->baton) lessen_budget(plan, static_cast<int64_t>(resume->outputs.size()), body);
    write_resume(plan, *resume, kv_transfer_params, body);
  }
  body.set("kv_transfer_params", std::string(kv_transfer_params));
  body.set("return_token_ids", "true");
  if (!plan.stream) return body.text();
  const auto given_options = plan.body.find("stream_options");
  Json options = given_options == plan.body.end() || given_options->is_null() ? Json::object() : *given_options;
  if (options.is_object()) {
    options["include_usage"] = true;
    body.set("stream_options", dump(options));
  }
  return body.text();
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
    notes.only_usage = is_chunk && !has_choices && !plan.wants_usage;
  }
  return notes;
}

std::string error_json(int status, std::string_view type, std::string_view message) {
  const Json error = {{"error", {{"message", message}, {"type", type}, {"param", nullptr}, {"code", status}}}};
  return error.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace baton::proxy
