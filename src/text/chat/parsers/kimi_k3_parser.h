// Kimi K3's channels, reasoning and calls in one: think, response, tools with call and argument. The prompt has usually
// opened the first channel. A call is shown once it is complete.
#pragma once

#include <unordered_map>

#include "text/chat/parsers/event_writer.h"
#include "text/chat/parsers/kimi_k3_tag.h"

namespace baton::text {

class KimiK3Parser final : public LexemeSink {
 public:
  struct Rules {
    bool starts_in_think = true;
    bool shows_reasoning = true;  // false: thoughts are content
    bool shows_calls = true;
  };
  KimiK3Parser(Rules rules, EventWriter& writer)
      : rules_(rules), writer_(writer), state_(rules.starts_in_think ? State::kThink : State::kAnswer) {}
  void take(const Lexeme& lexeme) override;
  void finish() override;

  static std::vector<MarkerSpelling> markers();

 private:
  // kAnswer: content without its channel's opening; kResponse: inside it; kBetween: behind a channel.
  enum class State : uint8_t { kThink, kAnswer, kResponse, kBetween, kTools, kCall, kArgument, kDone };
  struct Argument {
    std::string key, type, value;
    bool whole = false;  // a json block: the arguments themselves
  };

  void take_text(std::string_view text);
  void take_tag(const K3Tag& tag);
  bool tag_in_think(const K3Tag& tag);
  bool tag_in_answer(const K3Tag& tag);
  bool tag_in_tools(const K3Tag& tag);
  bool tag_in_call(const K3Tag& tag);
  bool tag_in_argument(const K3Tag& tag);
  void begin_call(const K3Tag& tag);
  void end_call();
  void think(std::string_view text);

  Rules rules_;
  EventWriter& writer_;
  State state_;
  K3TagReader reader_;
  LeadingSpace leading_;       // of kAnswer
  bool said_ = false;          // something has been written, or a channel opened
  bool opened_think_ = false;  // the model, not the prompt, has opened its reasoning
  std::string call_name_;
  std::vector<Argument> arguments_;
};

}  // namespace baton::text
