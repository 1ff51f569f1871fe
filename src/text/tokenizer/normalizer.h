// Rewrites of text before it is cut: each step as the `tokenizers` library does it. Immutable; any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/unicode.h"

namespace baton::text {

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  virtual std::string run(std::string_view text, SearchBudget& budget) const = 0;
};

class Normalizer {
 public:
  void add(std::unique_ptr<const NormalizerStep> step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }
  std::string run(std::string_view text, SearchBudget& budget) const;

 private:
  std::vector<std::unique_ptr<const NormalizerStep>> steps_;
};

std::unique_ptr<NormalizerStep> make_unicode_form(NormalForm form);
std::unique_ptr<NormalizerStep> make_lower_case();
std::unique_ptr<NormalizerStep> make_prepend(std::string prefix);
std::unique_ptr<NormalizerStep> make_strip(bool left, bool right);
std::unique_ptr<NormalizerStep> make_replace(std::string from, std::string to);
std::unique_ptr<NormalizerStep> make_regex_replace(Regex from, std::string to);

// `text` with every `from` (not empty) replaced.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

}  // namespace baton::text
