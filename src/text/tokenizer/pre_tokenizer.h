// Steps that cut text into the words which the model then encodes one by one, with the meaning that the `tokenizers`
// library gives to each. Immutable; any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/tokenizer/pieces.h"

namespace baton::text {

class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  virtual void run(Pieces& pieces, SearchBudget& budget) const = 0;
};
using PreTokenizer = std::vector<std::unique_ptr<const PreTokenizerStep>>;

// What becomes of a match of the pattern.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

std::unique_ptr<PreTokenizerStep> make_split(Regex regex, SplitBehavior behavior, bool invert);
// A single cut by a list of alternatives; `pattern` in the dialect of tokenizer files.
Result<std::unique_ptr<PreTokenizerStep>> make_regex_split(std::string_view pattern);
// Adds a space before each piece that has none.
std::unique_ptr<PreTokenizerStep> make_prefix_space();
enum class PrependScheme { kAlways, kFirst, kNever };
struct MetaspaceOptions {
  std::string replacement = "\xE2\x96\x81";
  PrependScheme scheme = PrependScheme::kAlways;
  bool split = true;
};
Result<std::unique_ptr<PreTokenizerStep>> make_metaspace(const MetaspaceOptions& options);

// GPT-2's word pattern, which ByteLevel applies with use_regex.
std::string_view gpt2_pattern();

}  // namespace baton::text
