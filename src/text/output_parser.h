// What a model wrote, taken apart while it is written: reasoning, content and tool calls. Pure; one thread per parser.
//
// A parser is fed the decoded text of one choice in pieces of any size and yields the same result however it was cut.
// It holds at most what could still become a marker, whitespace that may have to go, and, where a format shows a call
// only once it is complete, that call. Work is linear in the text. It never fails: text that is no call stays text.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace baton::text {

struct OutputEvent {
  enum class Kind : uint8_t { kReasoning, kContent, kCallBegin, kCallArguments, kCallEnd };
  Kind kind = Kind::kContent;
  std::string text;  // what is new; the function's name with kCallBegin; empty with kCallEnd
  std::string id;    // kCallBegin: the id that the model gave the call; empty: whoever answers makes one
};
using OutputEvents = std::vector<OutputEvent>;

class OutputParser {
 public:
  virtual ~OutputParser() = default;
  // Appends what is certain after `text`. `is_marker_token`: the text is that of one token out of token_markers.
  virtual void push(std::string_view text, bool is_marker_token, OutputEvents& events) = 0;
  // The end of the output, whatever ended it: appends what was held back. A call that was begun but not ended by the
  // model gets its kCallEnd, with its arguments as far as they came.
  virtual void finish(OutputEvents& events) = 0;
};

// The parsers of one server, by the names of --reasoning-parser and --tool-call-parser. Immutable; any thread.
class OutputFormat {
 public:
  // Empty names: none. kInvalidArgument for an unknown name (with the known ones), and for kimi_k3 beside another
  // family, since its reasoning and calls are channels of one format.
  static Result<OutputFormat> make(const std::string& reasoning, const std::string& tools);
  static const std::vector<std::string>& reasoning_names();
  static const std::vector<std::string>& tool_names();

  bool reads_reasoning() const { return !reasoning_.empty(); }
  bool reads_tools() const { return !tools_.empty(); }

  struct Options {
    std::optional<bool> thinking;       // chat_template_kwargs; absent: the model's habit
    std::optional<bool> starts_inside;  // the output begins inside the reasoning; absent: by `thinking`
    bool calls = false;                 // tool calls may be made; false: they are not looked for (kimi_k3: are dropped)
    // The markers that are single tokens of the vocabulary: they are believed only as that token, so that text which
    // spells one out stays text. The others are found in the text.
    const std::set<std::string>* token_markers = nullptr;
  };
  // Whether the output begins inside the reasoning, where the end of the prompt shows it: the prompt has just opened
  // the reasoning, or ended it. That counts more than what a request calls thinking, which templates may not know.
  std::optional<bool> prompt_opens_reasoning(std::string_view prompt) const;
  // The spellings that a parser under these options looks for; they must not be lost in decoding.
  std::vector<std::string> markers(bool calls) const;
  // Null when there is nothing to parse.
  std::unique_ptr<OutputParser> make_parser(const Options& options) const;

 private:
  std::string reasoning_, tools_;
};

}  // namespace baton::text
