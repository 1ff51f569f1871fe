// Which parser a pair of names means, and how its stages are put together.
#include <algorithm>

#include "text/chat/parsers/content_stage.h"
#include "text/chat/parsers/deepseek_tools.h"
#include "text/chat/parsers/hermes_tools.h"
#include "text/chat/parsers/kimi_k2_tools.h"
#include "text/chat/parsers/kimi_k3_parser.h"
#include "text/chat/parsers/think_stage.h"
#include "text/output_parser.h"

namespace baton::text {
namespace {

Result<void> check_name(const char* flag, const std::string& name, const std::vector<std::string>& known) {
  if (name.empty() || std::find(known.begin(), known.end(), name) != known.end()) return {};
  return fail(Code::kInvalidArgument, "invalid {} parser: {} (chose from {{ {} }})", flag, name, fmt::join(known, ","));
}

void add(std::vector<MarkerSpelling>& to, const std::vector<MarkerSpelling>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// The stages' names that read markers here: "" for none.
std::vector<MarkerSpelling> spellings(const std::string& reasoning, const std::string& tools, bool calls) {
  std::vector<MarkerSpelling> markers;
  if (reasoning == "kimi_k3" || tools == "kimi_k3") return KimiK3Parser::markers();
  if (!reasoning.empty()) add(markers, ThinkStage::markers());
  const bool section_ends_reasoning = reasoning == "kimi_k2";
  if ((calls && tools == "kimi_k2") || section_ends_reasoning) add(markers, KimiK2Tools::markers());
  if (calls && tools == "hermes") add(markers, HermesTools::markers());
  if (calls && tools.starts_with("deepseek_v3")) add(markers, DeepSeekTools::markers());
  return markers;
}

ThinkRules think_rules(const std::string& reasoning, std::optional<bool> thinking) {
  if (reasoning == "kimi_k2") {
    return {.starts_inside = thinking.value_or(true),
            .calls_end_it = true,
            .strip_trailing_space = true,
            .drop_stray_close = true};
  }
  // deepseek_v3 is for models whose template thinks only when told to; R1 always does.
  return {.starts_inside = reasoning == "deepseek_v3" ? thinking.value_or(false) : true};
}

// Lexer and stages of one choice.
class StagedParser final : public OutputParser {
 public:
  StagedParser(const std::string& reasoning, const std::string& tools, const OutputFormat::Options& options)
      : lexer_(spellings(reasoning, tools, options.calls), options.token_markers) {
    if (reasoning == "kimi_k3" || tools == "kimi_k3") {
      last_ = std::make_unique<KimiK3Parser>(
          KimiK3Parser::Rules{.starts_in_think = options.starts_inside.value_or(options.thinking.value_or(true)),
                              .shows_reasoning = !reasoning.empty(),
                              .shows_calls = options.calls && !tools.empty()},
          writer_);
      return;
    }
    if (options.calls && tools == "kimi_k2") {
      last_ = std::make_unique<KimiK2Tools>(writer_);
    } else if (options.calls && tools == "hermes") {
      last_ = std::make_unique<HermesTools>(writer_);
    } else if (options.calls && !tools.empty()) {
      last_ = std::make_unique<DeepSeekTools>(tools == "deepseek_v3", writer_);
    } else {
      last_ = std::make_unique<ContentStage>(writer_);
    }
    if (!reasoning.empty()) {
      ThinkRules rules = think_rules(reasoning, options.thinking);
      rules.starts_inside = options.starts_inside.value_or(rules.starts_inside);
      think_ = std::make_unique<ThinkStage>(rules, writer_, *last_);
    }
  }

  void push(std::string_view text, bool is_marker_token, OutputEvents& events) override {
    writer_.open(events);
    lexer_.push(text, is_marker_token, first());
  }
  void finish(OutputEvents& events) override {
    writer_.open(events);
    lexer_.finish(first());
    first().finish();
  }

 private:
  LexemeSink& first() { return think_ ? *think_ : *last_; }

  EventWriter writer_;
  MarkerLexer lexer_;
  std::unique_ptr<LexemeSink> last_;
  std::unique_ptr<LexemeSink> think_;
};

}  // namespace

const std::vector<std::string>& OutputFormat::reasoning_names() {
  static const std::vector<std::string> names = {"deepseek_r1", "deepseek_v3", "kimi_k2", "kimi_k3"};
  return names;
}
const std::vector<std::string>& OutputFormat::tool_names() {
  static const std::vector<std::string> names = {"deepseek_v3", "deepseek_v31", "hermes", "kimi_k2", "kimi_k3"};
  return names;
}

Result<OutputFormat> OutputFormat::make(const std::string& reasoning, const std::string& tools) {
  BATON_TRY(check_name("reasoning", reasoning, reasoning_names()));
  BATON_TRY(check_name("tool call", tools, tool_names()));
  const bool mixed = !reasoning.empty() && !tools.empty() && (reasoning == "kimi_k3") != (tools == "kimi_k3");
  if (mixed) {
    return fail(Code::kInvalidArgument,
                "reasoning parser {} beside tool call parser {}: kimi_k3 reads reasoning and calls from one format, so "
                "both are kimi_k3 or neither is",
                reasoning, tools);
  }
  OutputFormat format;
  format.reasoning_ = reasoning;
  format.tools_ = tools;
  return format;
}

std::optional<bool> OutputFormat::prompt_opens_reasoning(std::string_view prompt) const {
  prompt = prompt.substr(0, prompt.find_last_not_of(kSpaces) + 1);
  const bool k3 = reasoning_ == "kimi_k3" || tools_ == "kimi_k3";
  if (prompt.ends_with(k3 ? "<|open|>think<|sep|>" : "<think>")) return true;
  if (prompt.ends_with(k3 ? "<|open|>response<|sep|>" : "</think>")) return false;
  return std::nullopt;
}

std::vector<std::string> OutputFormat::markers(bool calls) const {
  std::vector<std::string> texts;
  for (const auto& spelling : spellings(reasoning_, tools_, calls)) texts.emplace_back(spelling.text);
  return texts;
}

std::unique_ptr<OutputParser> OutputFormat::make_parser(const Options& options) const {
  if (reasoning_.empty() && (tools_.empty() || (!options.calls && tools_ != "kimi_k3"))) return nullptr;
  return std::make_unique<StagedParser>(reasoning_, tools_, options);
}

}  // namespace baton::text
