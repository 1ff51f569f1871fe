#include "text/tokenizer/normalizer.h"

#include <utility>

namespace baton::text {
namespace {

template <typename Function>
class FunctionStep final : public NormalizerStep {
 public:
  explicit FunctionStep(Function function) : function_(std::move(function)) {}
  std::string run(std::string_view text, SearchBudget& budget) const override { return function_(text, budget); }

 private:
  Function function_;
};

template <typename Function>
std::unique_ptr<NormalizerStep> step(Function function) {
  return std::make_unique<FunctionStep<Function>>(std::move(function));
}

std::string_view strip_left(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step first = decode_utf8(text);
    if (!is_white_space(first.code_point)) break;
    text.remove_prefix(first.size);
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    if (!is_white_space(decode_utf8(text.substr(begin)).code_point)) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

}  // namespace

std::string Normalizer::run(std::string_view text, SearchBudget& budget) const {
  std::string out(text);
  for (const auto& one : steps_) out = one->run(out, budget);
  return out;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  for (size_t found; (found = text.find(from)) != std::string_view::npos;) {
    out.append(text.substr(0, found)).append(to);
    text.remove_prefix(found + from.size());
  }
  return out.append(text);
}

std::unique_ptr<NormalizerStep> make_unicode_form(NormalForm form) {
  return step([form](std::string_view text, SearchBudget&) { return normalize_unicode(text, form); });
}

std::unique_ptr<NormalizerStep> make_lower_case() {
  return step([](std::string_view text, SearchBudget&) { return lower_case(text); });
}

std::unique_ptr<NormalizerStep> make_prepend(std::string prefix) {
  return step([prefix = std::move(prefix)](std::string_view text, SearchBudget&) {
    return text.empty() ? std::string() : std::string(prefix).append(text);
  });
}

std::unique_ptr<NormalizerStep> make_strip(bool left, bool right) {
  return step([left, right](std::string_view text, SearchBudget&) {
    if (left) text = strip_left(text);
    if (right) text = strip_right(text);
    return std::string(text);
  });
}

std::unique_ptr<NormalizerStep> make_replace(std::string from, std::string to) {
  return step([from = std::move(from), to = std::move(to)](std::string_view text, SearchBudget&) {
    return replace_all(text, from, to);
  });
}

std::unique_ptr<NormalizerStep> make_regex_replace(Regex from, std::string to) {
  return step([from = std::make_shared<const Regex>(std::move(from)), to = std::move(to)](std::string_view text,
                                                                                          SearchBudget& budget) {
    std::string out;
    size_t at = 0;
    from->each_match(text, budget, [&](Regex::Match match) {
      out.append(text.substr(at, match.begin - at)).append(to);
      at = match.end;
    });
    return out.append(text.substr(at));
  });
}

}  // namespace baton::text
