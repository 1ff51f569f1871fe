#include "text/chat/parsers/kimi_k3_parser.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace baton::text {
namespace {

using nlohmann::json;

std::string json_string(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

std::vector<MarkerSpelling> KimiK3Parser::markers() {
  return {{Marker::kK3Open, "<|open|>"},
          {Marker::kK3Close, "<|close|>"},
          {Marker::kK3Separator, "<|sep|>"},
          {Marker::kK3EndOfMessage, "<|end_of_msg|>"}};
}

void KimiK3Parser::take(const Lexeme& lexeme) {
  for (const auto& part : reader_.take(lexeme)) {
    if (part.tag) {
      take_tag(*part.tag);
    } else if (part.end_of_message && (state_ != State::kArgument || part.text.empty())) {
      state_ = State::kDone;
    } else {
      take_text(part.text);
    }
  }
}

void KimiK3Parser::take_text(std::string_view text) {
  if (text.empty()) return;
  switch (state_) {
    case State::kThink:
      return think(text);
    case State::kAnswer:
      said_ |= text.find_first_not_of(kSpaces) != std::string_view::npos;
      return leading_.content(text, writer_);
    case State::kResponse:
      said_ = true;
      return writer_.content(text);
    case State::kArgument:
      arguments_.back().value += text;
      return;
    case State::kBetween:
    case State::kTools:
    case State::kCall:
    case State::kDone:
      return;
  }
}

void KimiK3Parser::think(std::string_view text) {
  said_ = true;
  rules_.shows_reasoning ? writer_.reasoning(text) : writer_.content(text);
}

void KimiK3Parser::take_tag(const K3Tag& tag) {
  bool meant = false;
  switch (state_) {
    case State::kThink:
      meant = tag_in_think(tag);
      break;
    case State::kAnswer:
    case State::kResponse:
    case State::kBetween:
      meant = tag_in_answer(tag);
      break;
    case State::kTools:
      meant = tag_in_tools(tag);
      break;
    case State::kCall:
      meant = tag_in_call(tag);
      break;
    case State::kArgument:
      meant = tag_in_argument(tag);
      break;
    case State::kDone:
      return;
  }
  if (!meant && (!tag.is_token || state_ == State::kArgument)) take_text(tag.raw);
}

bool KimiK3Parser::tag_in_think(const K3Tag& tag) {
  if (tag.name == "think") {
    if (tag.opens) {
      opened_think_ |= !said_;
    } else {
      state_ = State::kAnswer;
    }
    return true;
  }
  if (tag.name == "message" && !tag.opens) {
    state_ = State::kDone;
    return true;
  }
  // Without the end of its thoughts the model may go on to the next channel. A spelt-out opening of a response is
  // believed at the start alone, since thoughts quote it; and not in thoughts that the model has opened itself.
  if (tag.name == "tools" && tag.opens) {
    state_ = State::kTools;
    return true;
  }
  if (tag.name == "response" && tag.opens && !opened_think_ && (!said_ || tag.is_token)) {
    state_ = State::kResponse;
    said_ = true;
    return true;
  }
  return false;
}

bool KimiK3Parser::tag_in_answer(const K3Tag& tag) {
  if (tag.name == "tools" && tag.opens) {
    leading_.drop();
    state_ = State::kTools;
    return true;
  }
  if (tag.name == "message" && !tag.opens) {
    state_ = State::kDone;
    return true;
  }
  if (tag.name == "response") {
    if (!tag.opens) {
      if (state_ == State::kAnswer) leading_.show(writer_);
      state_ = State::kBetween;
      return true;
    }
    if (state_ == State::kResponse) return false;
    leading_.drop();
    state_ = State::kResponse;
    said_ = true;
    return true;
  }
  if (tag.name == "think" && state_ == State::kAnswer && tag.opens && !said_) {
    state_ = State::kThink;
    opened_think_ = true;
    return true;
  }
  return tag.name == "think";  // a stray one
}

bool KimiK3Parser::tag_in_tools(const K3Tag& tag) {
  if (tag.name == "call" && tag.opens) {
    begin_call(tag);
  } else if (tag.name == "tools" && !tag.opens) {
    state_ = State::kBetween;
  } else if (tag.name == "message" && !tag.opens) {
    state_ = State::kDone;
  } else if (tag.name == "response" && tag.opens) {
    state_ = State::kResponse;
  }
  return true;
}

bool KimiK3Parser::tag_in_call(const K3Tag& tag) {
  if ((tag.name == "argument" || tag.name == "json") && tag.opens) {
    const std::string type = tag.attribute("type");
    arguments_.push_back({tag.attribute("key"), type.empty() ? "string" : type, {}, tag.name == "json"});
    state_ = State::kArgument;
    return true;
  }
  if (tag.name == "call" && !tag.opens) {
    end_call();
    state_ = State::kTools;
    return true;
  }
  return tag_in_tools(tag);  // what was begun is dropped
}

bool KimiK3Parser::tag_in_argument(const K3Tag& tag) {
  if (tag.opens || tag.name != (arguments_.back().whole ? "json" : "argument")) return false;
  state_ = State::kCall;
  return true;
}

void KimiK3Parser::begin_call(const K3Tag& tag) {
  call_name_ = tag.attribute("tool");
  arguments_.clear();
  state_ = State::kCall;
}

// Texts stand as they are, other types are JSON; what claims to be JSON and isn't becomes a text. The last of several
// arguments of one key counts, at the place of the first.
void KimiK3Parser::end_call() {
  if (call_name_.empty() || !rules_.shows_calls) return;
  std::vector<std::pair<std::string, std::string>> members;
  std::unordered_map<std::string, size_t> places;
  std::string whole;
  for (auto& argument : arguments_) {
    const std::string_view bare = without_spaces(argument.value);
    const bool is_json = argument.type != "string" && json::accept(bare);
    if (argument.whole) {
      if (json::accept(bare)) whole = bare;
      continue;
    }
    std::string value = is_json ? std::string(bare) : json_string(argument.value);
    const auto [place, fresh] = places.try_emplace(argument.key, members.size());
    if (fresh) {
      members.emplace_back(argument.key, std::move(value));
    } else {
      members[place->second].second = std::move(value);
    }
  }
  std::string text;
  for (const auto& [key, value] : members) text += (text.empty() ? "" : ", ") + json_string(key) + ": " + value;
  writer_.begin_call(std::exchange(call_name_, {}), {});
  writer_.arguments(members.empty() && !whole.empty() ? whole : "{" + text + "}");
  writer_.end_call();
  arguments_.clear();
}

void KimiK3Parser::finish() {
  const std::string rest = reader_.finish();
  if (state_ == State::kThink || state_ == State::kAnswer || state_ == State::kResponse) take_text(rest);
  if (state_ == State::kAnswer) leading_.show(writer_);
  state_ = State::kDone;
}

}  // namespace baton::text
