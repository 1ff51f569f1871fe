// Answers on their way to the client, edited as text: the fields that the proxy asked for are taken out, all else stays
// byte for byte. About a microsecond for a chunk of a stream; a value made and written out again takes seven.
#include <algorithm>
#include <charconv>

#include "proxy/json_scan.h"
#include "proxy/request_plan.h"
#include "wire/ordered_json.h"

namespace baton::proxy {
namespace {

constexpr size_t kChoicesMax = 4096;
constexpr size_t kUsageRoom = 128;  // what the usage may grow by

bool read_ids(std::string_view array, std::vector<TokenId>& ids) {
  const char* at = array.data() + 1;
  const char* const end = array.data() + array.size() - 1;
  if (array.size() < 2 || array.front() != '[') return array == "null";
  while (at < end) {
    TokenId id = 0;
    const auto [rest, error] = std::from_chars(at, end, id);
    if (error != std::errc() || (rest != end && *rest != ',')) return false;
    ids.push_back(id);
    at = rest + 1;
  }
  return true;
}

bool is_hidden(std::string_view key) { return key == "token_ids" || key == "prompt_token_ids"; }

// `object` but for its hidden members: left out with the comma before them, or null where the whole shape is written.
void write_without_hidden(std::string_view object, const std::vector<JsonMember>& members, bool keep_null,
                          std::string& out) {
  const char* at = object.data();
  for (size_t i = 0; i < members.size(); ++i) {
    const auto& value = members[i].value;
    if (!is_hidden(members[i].key)) continue;
    const std::string_view before = members[i - 1].value;  // the first member is never a hidden one here
    out.append(at, keep_null ? value.data() : std::max(at, before.data() + before.size()));
    if (keep_null) out += "null";
    at = value.data() + value.size();
  }
  out.append(at, object.data() + object.size());
}

bool pass_choice(const RequestPlan& plan, std::string_view choice, std::vector<TokenId>& ids, std::string& out) {
  const auto members = scan_object(choice, kMaxJsonDepth);
  if (!members) return false;
  if (!members->empty() && is_hidden(members->front().key)) return false;
  bool first_choice = true;
  for (const auto& [key, value, _] : *members) {
    if (key == "prompt_token_ids" && value != "null") return false;
    if (key == "stop_reason" && value.starts_with('"')) return false;
    if (key == "finish_reason" && value != "null") return false;
    if (key == "index") first_choice = value == "0";
  }
  for (const auto& [key, value, _] : *members)
    if (key == "token_ids" && first_choice && !read_ids(value, ids)) return false;
  if (plan.wants_ids) {
    out += choice;
  } else {
    write_without_hidden(choice, *members, !plan.chat, out);
  }
  return true;
}

bool pass_choices(const RequestPlan& plan, std::string_view choices, std::vector<TokenId>& ids, std::string& out) {
  const auto elements = scan_array(choices, 2);
  if (!elements || elements->size() != 1 || !elements->front().starts_with('{')) return false;
  out += '[';
  if (!pass_choice(plan, elements->front(), ids, out)) return false;
  out += ']';
  return true;
}

// The choices of a whole answer, whose shape is always written out: hidden ones become null.
bool pass_whole_choices(const RequestPlan& plan, std::string_view choices, AnswerNotes& notes, std::string& out) {
  const auto elements = scan_array(choices, kChoicesMax);
  if (!elements || elements->empty() || elements->size() == kChoicesMax) return false;
  out += '[';
  for (const auto& choice : *elements) {
    const auto members = choice.starts_with('{') ? scan_object(choice, kMaxJsonDepth) : std::nullopt;
    if (!members || members->empty() || is_hidden(members->front().key)) return false;
    bool is_first = true;
    for (const auto& [key, value, _] : *members) {
      if (key == "stop_reason" && value == "\"recomputed\"") return false;
      if (key == "finish_reason" && value == "\"abort\"") return false;
      if (key == "index") is_first = value == "0";
    }
    for (const auto& [key, value, _] : *members) {
      if (!is_first || !is_hidden(key)) continue;
      if (!read_ids(value, key == "token_ids" ? notes.output_ids : notes.prompt_ids)) return false;
    }
    if (out.back() != '[') out += ',';
    if (plan.wants_ids) {
      out += choice;
    } else {
      write_without_hidden(choice, *members, /*keep_null=*/true, out);
    }
  }
  out += ']';
  return true;
}

bool pass_member(const RequestPlan& plan, const JsonMember& member, int64_t cached_tokens, AnswerNotes& notes,
                 std::string& out) {
  const auto& [key, value, _] = member;
  if (key == "error" || (key == "object" && value == "\"error\"")) return false;
  if (key == "choices") return pass_whole_choices(plan, value, notes, out);
  if (is_hidden(key)) {
    if (key == "prompt_token_ids" && !read_ids(value, notes.prompt_ids)) return false;
    out += plan.wants_ids ? value : "null";
  } else if (key == "kv_transfer_params") {
    out += "null";  // internal to the two engines
  } else if (key == "usage" && value != "null") {
    auto usage = wire::parse_ordered_json(value, kMaxJsonDepth);
    if (!usage || !usage->is_object()) return false;
    adapt_usage(*usage, cached_tokens, notes);
    out += usage->dump();
  } else {
    out += value;
  }
  return true;
}

}  // namespace

bool pass_answer(const RequestPlan& plan, std::string_view answer, int64_t cached_tokens, AnswerNotes& notes,
                 std::string& out) {
  const auto members = scan_object(answer, kMaxJsonDepth);
  if (!members || std::ranges::find(*members, "choices", &JsonMember::key) == members->end()) return false;
  AnswerNotes taken;
  std::string text;
  text.reserve(answer.size() + kUsageRoom);
  const char* at = answer.data();
  for (const auto& member : *members) {
    text.append(at, member.value.data());
    if (!pass_member(plan, member, cached_tokens, taken, text)) return false;
    at = member.value.data() + member.value.size();
  }
  text.append(at, answer.data() + answer.size());
  notes = std::move(taken);
  out = std::move(text);
  return true;
}

bool pass_chunk(const RequestPlan& plan, std::string_view chunk, std::vector<TokenId>& output_ids, std::string& out) {
  const auto members = scan_object(chunk, kMaxJsonDepth);
  if (!members) return false;
  const JsonMember* choices = nullptr;
  for (const auto& member : *members) {
    const auto key = member.key;
    if (key == "choices") choices = &member;
    const bool more = key == "error" || key == "kv_transfer_params" || key == "token_ids" ||
                      key == "prompt_token_ids" || (key == "usage" && member.value != "null") ||
                      (key == "object" && member.value == "\"error\"");
    if (more) return false;
  }
  if (!choices) return false;
  const size_t out_before = out.size(), ids_before = output_ids.size();
  const auto size = static_cast<size_t>(choices->value.data() - chunk.data());
  out.append(chunk.substr(0, size));
  if (!pass_choices(plan, choices->value, output_ids, out)) {
    out.resize(out_before);
    output_ids.resize(ids_before);
    return false;
  }
  out.append(chunk.substr(size + choices->value.size()));
  return true;
}

}  // namespace baton::proxy
