// The JSON of chat answers: messages, and the deltas of a stream, with reasoning and tool calls. One answer, one
// thread.
#pragma once

#include <map>

#include "server/answer.h"

namespace baton::server {

struct ChatAnswerOptions {
  std::string role;
  int top_logprobs = 0;
  std::string echo_text;
  bool parsed = false;              // deltas carry events; else their text is the content
  bool include_reasoning = true;    // false: reasoning is parsed, and not shown
  bool parallel_tool_calls = true;  // false: only the first call is shown
};

class ChatAnswer final : public Format {
 public:
  ChatAnswer(const text::Tokenizer& tokenizer, ChatAnswerOptions options)
      : tokenizer_(tokenizer), options_(std::move(options)) {}
  Json chunk_head(const AnswerPlan& plan) override;
  std::vector<Json> chunks(const AnswerPlan& plan, ChoiceState& choice, const ChoiceDelta& delta) override;
  Json whole(const AnswerPlan& plan, const std::vector<ChoiceState>& choices) override;

 private:
  // The "delta" objects of one step, none of which mixes reasoning, content and calls, or two calls.
  std::vector<Json> deltas(int choice, const ChoiceDelta& delta);
  Json message(const ChoiceDelta& total, bool& called) const;
  bool shows(const text::OutputEvent& event, int calls) const;
  Json logprobs(const AnswerPlan& plan, const ChoiceDelta& delta) const;
  Json chunk(const AnswerPlan& plan, Json entry);

  const text::Tokenizer& tokenizer_;
  ChatAnswerOptions options_;
  std::map<int, int> calls_;  // begun so far, by choice
};

}  // namespace baton::server
