#include "text/tokenizer/pre_tokenizer.h"

#include <utility>

#include "text/tokenizer/unicode.h"

namespace baton::text {
namespace {

struct Part {
  Span span;
  bool is_match;
};

// Joins the parts of one piece as the behaviour says and appends what is not empty.
void append_parts(std::vector<Part>& parts, SplitBehavior behavior, std::vector<Span>& out) {
  const auto append = [&](Span span) {
    if (span.begin < span.end) out.push_back(span);
  };
  switch (behavior) {
    case SplitBehavior::kIsolated:
      for (const Part& part : parts) append(part.span);
      return;
    case SplitBehavior::kRemoved:
      for (const Part& part : parts) {
        if (!part.is_match) append(part.span);
      }
      return;
    case SplitBehavior::kContiguous: {
      std::vector<Part> joined;
      bool previous = false;
      for (const Part& part : parts) {
        if (part.is_match == previous && !joined.empty()) {
          joined.back().span.end = part.span.end;
        } else {
          joined.push_back(part);
        }
        previous = part.is_match;
      }
      for (const Part& part : joined) append(part.span);
      return;
    }
    case SplitBehavior::kMergedWithPrevious: {
      std::vector<Span> joined;
      bool previous = false;
      for (const Part& part : parts) {
        if (part.is_match && !previous && !joined.empty()) {
          joined.back().end = part.span.end;
        } else {
          joined.push_back(part.span);
        }
        previous = part.is_match;
      }
      for (const Span span : joined) append(span);
      return;
    }
    case SplitBehavior::kMergedWithNext: {
      std::vector<Span> joined;  // from the last to the first
      bool previous = false;
      for (size_t i = parts.size(); i-- > 0;) {
        if (parts[i].is_match && !previous && !joined.empty()) {
          joined.back().begin = parts[i].span.begin;
        } else {
          joined.push_back(parts[i].span);
        }
        previous = parts[i].is_match;
      }
      for (size_t i = joined.size(); i-- > 0;) append(joined[i]);
      return;
    }
  }
}

class Split final : public PreTokenizerStep {
 public:
  Split(Regex regex, SplitBehavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}

  void run(Pieces& pieces, SearchBudget& budget) const override {
    std::vector<Span> out;
    out.reserve(pieces.spans.size() + pieces.text.size() / 4);
    std::vector<Part> parts;
    for (size_t i = 0; i < pieces.spans.size(); ++i) {
      const Span whole = pieces.spans[i];
      parts.clear();
      size_t at = whole.begin;
      regex_.each_match(pieces.piece(i), budget, [&](Regex::Match match) {
        const Span span{whole.begin + match.begin, whole.begin + match.end};
        if (at != span.begin) parts.push_back({{at, span.begin}, invert_});
        parts.push_back({span, !invert_});
        at = span.end;
      });
      if (at != whole.end) parts.push_back({{at, whole.end}, invert_});
      append_parts(parts, behavior_, out);
    }
    pieces.spans = std::move(out);
  }

 private:
  Regex regex_;
  SplitBehavior behavior_;
  bool invert_;
};

// Rewrites the text of every piece through `edit(piece, is_first, out)`.
template <typename Edit>
void rewrite(Pieces& pieces, Edit&& edit) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.spans.size());
  std::vector<Span> spans;
  spans.reserve(pieces.spans.size());
  for (size_t i = 0; i < pieces.spans.size(); ++i) {
    const size_t begin = text.size();
    edit(pieces.piece(i), pieces.at_text_start && i == 0 && pieces.spans[i].begin == 0, text);
    spans.push_back({begin, text.size()});
  }
  pieces.text = std::move(text);
  pieces.spans = std::move(spans);
}

class PrefixSpace final : public PreTokenizerStep {
 public:
  void run(Pieces& pieces, SearchBudget&) const override {
    rewrite(pieces, [](std::string_view piece, bool, std::string& out) {
      if (!piece.starts_with(' ')) out += ' ';
      out += piece;
    });
  }
};

class Metaspace final : public PreTokenizerStep {
 public:
  Metaspace(MetaspaceOptions options, std::unique_ptr<PreTokenizerStep> split)
      : options_(std::move(options)), split_(std::move(split)) {}

  void run(Pieces& pieces, SearchBudget& budget) const override {
    rewrite(pieces, [&](std::string_view piece, bool first, std::string& out) {
      const size_t begin = out.size();
      for (const char c : piece) {
        if (c == ' ') {
          out += options_.replacement;
        } else {
          out += c;
        }
      }
      const bool wanted =
          options_.scheme == PrependScheme::kAlways || (options_.scheme == PrependScheme::kFirst && first);
      if (wanted && !std::string_view(out).substr(begin).starts_with(options_.replacement)) {
        out.insert(begin, options_.replacement);
      }
    });
    if (split_) split_->run(pieces, budget);
  }

 private:
  MetaspaceOptions options_;
  std::unique_ptr<PreTokenizerStep> split_;
};

}  // namespace

std::unique_ptr<PreTokenizerStep> make_split(Regex regex, SplitBehavior behavior, bool invert) {
  return std::make_unique<Split>(std::move(regex), behavior, invert);
}

Result<std::unique_ptr<PreTokenizerStep>> make_regex_split(std::string_view pattern) {
  BATON_TRY_ASSIGN(Regex regex, Regex::compile(pattern));
  return make_split(std::move(regex), SplitBehavior::kIsolated, false);
}

std::unique_ptr<PreTokenizerStep> make_prefix_space() { return std::make_unique<PrefixSpace>(); }

Result<std::unique_ptr<PreTokenizerStep>> make_metaspace(const MetaspaceOptions& options) {
  std::unique_ptr<PreTokenizerStep> split;
  if (options.split) {
    BATON_TRY_ASSIGN(Regex regex, Regex::literal(options.replacement));
    split = make_split(std::move(regex), SplitBehavior::kMergedWithNext, false);
  }
  return std::make_unique<Metaspace>(options, std::move(split));
}

std::string_view gpt2_pattern() {
  return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
}

}  // namespace baton::text
