#include "text/chat/formats/kimi_k3_messages.h"

#include <algorithm>
#include <map>

#include "base/json_depth.h"

namespace baton::text {
namespace {

constexpr int kArgumentsDepthMax = 128;

struct Target {
  size_t position;
  std::string name;
};
using Place = std::pair<size_t, size_t>;  // of the call among the calls, of the message
using Targets = std::map<std::string, Target, std::less<>>;

Result<Targets> targets_of(const OrderedJson& assistant) {
  Targets targets;
  BATON_TRY_ASSIGN(const auto calls, tool_calls_of(assistant));
  for (size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].id) targets.try_emplace(*calls[i].id, Target{i, calls[i].name});
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    targets.try_emplace(fmt::format("{}:{}", calls[i].name, i), Target{i, calls[i].name});
  }
  return targets;
}

const Target* find_target(const Targets& targets, const OrderedJson& message) {
  const OrderedJson& own = chat_member(message, "tool_call_id");
  const OrderedJson& id = own.is_null() ? chat_member(message, "id") : own;
  if (!id.is_string()) return nullptr;
  const auto found = targets.find(id.get_ref<const std::string&>());
  return found == targets.end() ? nullptr : &found->second;
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n\f\v") == std::string_view::npos; }

}  // namespace

Result<std::vector<KimiK3Message>> order_tool_results(const std::vector<ChatMessage>& messages) {
  std::vector<KimiK3Message> ordered;
  ordered.reserve(messages.size());
  Targets targets;
  for (size_t at = 0; at < messages.size();) {
    if (messages[at].role != "tool") {
      if (messages[at].role == "assistant") {
        BATON_TRY_ASSIGN(targets, targets_of(*messages[at].json));
      }
      ordered.push_back({messages[at++], ""});
      continue;
    }
    const size_t begin = ordered.size();
    std::vector<Place> places;
    for (; at < messages.size() && messages[at].role == "tool"; ++at) {
      const Target* target = find_target(targets, *messages[at].json);
      if (target != nullptr) places.push_back({target->position, ordered.size()});
      ordered.push_back({messages[at], target == nullptr ? "" : target->name});
    }
    if (places.size() < ordered.size() - begin) continue;
    std::sort(places.begin(), places.end());
    std::vector<KimiK3Message> run;
    for (const auto& [position, index] : places) run.push_back(ordered[index]);
    std::move(run.begin(), run.end(), ordered.begin() + static_cast<ptrdiff_t>(begin));
  }
  return ordered;
}

Result<KimiK3Arguments> read_arguments(const ToolCall& call) {
  KimiK3Arguments read;
  const OrderedJson& arguments = *call.arguments;
  if (arguments.is_null()) return read;
  if (arguments.is_object()) {
    read.members = arguments;
    return read;
  }
  if (!arguments.is_string()) {
    return fail(Code::kInvalidArgument, "the arguments of the call of '{}' must be an object or a string", call.name);
  }
  const std::string& text = arguments.get_ref<const std::string&>();
  if (is_blank(text)) return read;
  if (json_nests_deeper_than(text, kArgumentsDepthMax)) {
    return fail(Code::kInvalidArgument, "the arguments of the call of '{}' nest deeper than {} levels", call.name,
                kArgumentsDepthMax);
  }
  OrderedJson parsed = OrderedJson::parse(text, nullptr, false);
  if (parsed.is_discarded()) {
    read.raw = text;
  } else if (parsed.is_object()) {
    read.members = std::move(parsed);
  } else {
    return fail(Code::kInvalidArgument, "the arguments of the call of '{}' must be a JSON object", call.name);
  }
  return read;
}

}  // namespace baton::text
