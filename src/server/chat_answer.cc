#include "server/chat_answer.h"

#include <random>

#include "server/logprobs_json.h"

namespace baton::server {
namespace {

using Kind = text::OutputEvent::Kind;

bool of_a_call(const text::OutputEvent& event) {
  return event.kind != Kind::kReasoning && event.kind != Kind::kContent;
}

// vLLM's shape. Where the model names its calls itself, its id is the client's.
std::string call_id(const std::string& given) {
  if (!given.empty()) return given;
  thread_local std::random_device device;
  return fmt::format("chatcmpl-tool-{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

// A model that ended by itself after calls waits for their results; one that was cut did not end.
Json finish_reason(const ChoiceDelta& delta, bool called) {
  if (!delta.finish_reason) return nullptr;
  return called && *delta.finish_reason == "stop" ? Json("tool_calls") : Json(*delta.finish_reason);
}

}  // namespace

Json ChatAnswer::chunk_head(const AnswerPlan& plan) {
  return {{"id", plan.id}, {"object", "chat.completion.chunk"}, {"created", plan.created}, {"model", plan.model}};
}

Json ChatAnswer::chunk(const AnswerPlan& plan, Json entry) {
  Json made = chunk_head(plan);
  made["choices"] = Json::array({std::move(entry)});
  return made;
}

Json ChatAnswer::logprobs(const AnswerPlan& plan, const ChoiceDelta& delta) const {
  return plan.fields.sampling.logprobs ? chat_logprobs_json(delta.logprobs, options_.top_logprobs) : Json(nullptr);
}

bool ChatAnswer::shows(const text::OutputEvent& event, int calls) const {
  if (event.kind == Kind::kReasoning) return options_.include_reasoning;
  if (event.kind == Kind::kCallEnd) return false;
  return event.kind == Kind::kContent || options_.parallel_tool_calls || calls <= 1;
}

std::vector<Json> ChatAnswer::deltas(int choice, const ChoiceDelta& delta) {
  std::vector<Json> made;
  if (!options_.parsed) {
    made.push_back(delta.text.empty() && delta.finish_reason ? Json::object() : Json{{"content", delta.text}});
    return made;
  }
  int& calls = calls_[choice];
  for (const auto& event : delta.events) {
    if (event.kind == Kind::kCallBegin) ++calls;
    if (!shows(event, calls)) continue;
    if (event.kind == Kind::kReasoning) {
      made.push_back({{"reasoning", event.text}});
    } else if (event.kind == Kind::kContent) {
      made.push_back({{"content", event.text}});
    } else if (event.kind == Kind::kCallBegin) {
      made.push_back({{"tool_calls", Json::array({{{"index", calls - 1},
                                                   {"id", call_id(event.id)},
                                                   {"type", "function"},
                                                   {"function", {{"name", event.text}, {"arguments", ""}}}}})}});
    } else if (!made.empty() && made.back().contains("tool_calls")) {
      auto& arguments = made.back()["tool_calls"][0]["function"]["arguments"];
      arguments = arguments.get_ref<const std::string&>() + event.text;
    } else {
      made.push_back(
          {{"tool_calls", Json::array({{{"index", calls - 1}, {"function", {{"arguments", event.text}}}}})}});
    }
  }
  return made;
}

std::vector<Json> ChatAnswer::chunks(const AnswerPlan& plan, ChoiceState& choice, const ChoiceDelta& delta) {
  std::vector<Json> chunks;
  if (!std::exchange(choice.started, true)) {
    // The role comes with the first token, not before: clients take the first chunk as the first token's time.
    Json entry{{"index", choice.index},
               {"delta", {{"role", options_.role}, {"content", options_.echo_text}}},
               {"logprobs", nullptr},
               {"finish_reason", nullptr}};
    chunks.push_back(chunk(plan, std::move(entry)));
    if (plan.fields.return_token_ids) chunks.back()["prompt_token_ids"] = plan.prompts[0].ids;
  }
  if (delta.empty()) return chunks;
  auto parts = deltas(choice.index, delta);
  // What has nothing to show may still have an end, ids or logprobs to tell.
  const bool tells = delta.finish_reason || plan.fields.return_token_ids || plan.fields.sampling.logprobs;
  if (parts.empty() && tells) parts.push_back(Json::object());
  for (size_t i = 0; i < parts.size(); ++i) {
    Json entry;
    entry["index"] = choice.index;
    entry["delta"] = std::move(parts[i]);
    entry["logprobs"] = i == 0 ? logprobs(plan, delta) : Json(nullptr);
    const bool last = i + 1 == parts.size();
    entry["finish_reason"] = last ? finish_reason(delta, calls_[choice.index] > 0) : Json(nullptr);
    if (last && delta.finish_reason) entry["stop_reason"] = stop_reason_json(delta);
    if (plan.fields.return_token_ids) entry["token_ids"] = last ? Json(delta.token_ids) : Json::array();
    chunks.push_back(chunk(plan, std::move(entry)));
  }
  return chunks;
}

Json ChatAnswer::message(const ChoiceDelta& total, bool& called) const {
  std::string reasoning, content = options_.parsed ? std::string() : total.text;
  Json calls = Json::array();
  std::string arguments;
  int begun = 0;
  for (const auto& event : total.events) {
    if (event.kind == Kind::kCallBegin) ++begun;
    if (of_a_call(event) && (options_.parallel_tool_calls || begun <= 1)) {
      if (event.kind == Kind::kCallBegin) {
        calls.push_back({{"id", call_id(event.id)}, {"type", "function"}, {"function", {{"name", event.text}}}});
        arguments.clear();
      }
      if (event.kind == Kind::kCallArguments) arguments += event.text;
      if (event.kind == Kind::kCallEnd) calls.back()["function"]["arguments"] = arguments;
    }
    if (event.kind == Kind::kReasoning && options_.include_reasoning) reasoning += event.text;
    if (event.kind == Kind::kContent) content += event.text;
  }
  called = begun > 0;
  content = options_.echo_text + content;
  Json message{{"role", options_.role}, {"content", content.empty() && options_.parsed ? Json(nullptr) : Json(content)},
               {"refusal", nullptr},    {"annotations", nullptr},
               {"audio", nullptr},      {"function_call", nullptr}};
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  message["reasoning"] = reasoning.empty() ? Json(nullptr) : Json(reasoning);
  return message;
}

Json ChatAnswer::whole(const AnswerPlan& plan, const std::vector<ChoiceState>& choices) {
  Json body = chunk_head(plan);
  body["object"] = "chat.completion";
  body["choices"] = Json::array();
  for (const auto& choice : choices) {
    bool called = false;
    Json entry;
    entry["index"] = choice.index;
    entry["message"] = message(choice.total, called);
    entry["logprobs"] = logprobs(plan, choice.total);
    entry["finish_reason"] = finish_reason(choice.total, called);
    entry["stop_reason"] = stop_reason_json(choice.total);
    entry["token_ids"] = plan.fields.return_token_ids ? Json(choice.total.token_ids) : Json(nullptr);
    body["choices"].push_back(std::move(entry));
  }
  body["service_tier"] = nullptr;
  body["system_fingerprint"] = nullptr;
  body["prompt_logprobs"] = plan.fields.sampling.prompt_logprobs
                                ? prompt_logprobs_json(tokenizer_, plan.prompts[0].ids, choices[0].prompt_logprobs)
                                : Json(nullptr);
  body["prompt_token_ids"] = plan.fields.return_token_ids ? Json(plan.prompts[0].ids) : Json(nullptr);
  return body;
}

}  // namespace baton::server
