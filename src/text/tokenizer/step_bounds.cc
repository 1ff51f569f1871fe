#include "text/tokenizer/step_bounds.h"

#include <algorithm>

namespace baton::text {
namespace {

// The longest UTF-8 of a form over the longest of what it is made from (Unicode's FAQ on normalisation).
constexpr uint64_t kCanonicalGrowth = 3;
constexpr uint64_t kCompatibilityGrowth = 11;
constexpr uint64_t kCaseGrowth = 3;

uint64_t replace_growth(const Json& step) {
  const uint64_t to = json_string(step, "content").size();
  const Json& pattern = json_member(step, "pattern");
  if (json_member(pattern, "Regex").is_string()) return to + 1;  // it may match nothing, everywhere
  const uint64_t from =
      pattern.is_string() ? pattern.get_ref<const std::string&>().size() : json_string(pattern, "String").size();
  return std::max<uint64_t>(1, from == 0 ? to : (to + from - 1) / from);
}

}  // namespace

Result<void> StepBounds::add(uint64_t growth) {
  if (++steps_ > kStepsMax) {
    return fail(Code::kOutOfRange, "tokenizer.json: the {} has more than {} steps", chain_, kStepsMax);
  }
  if (growth > growth_max_ / growth_) {
    return fail(Code::kOutOfRange, "tokenizer.json: the steps of the {} can make more than {} bytes of one", chain_,
                growth_max_);
  }
  growth_ *= growth;
  return {};
}

uint64_t normalizer_growth(const Json& step) {
  const std::string type = json_type(step);
  if (type == "NFC" || type == "NFD") return kCanonicalGrowth;
  if (type == "NFKC" || type == "NFKD") return kCompatibilityGrowth;
  if (type == "Lowercase") return kCaseGrowth;
  if (type == "Prepend") return 1 + json_string(step, "prepend").size();
  return type == "Replace" ? replace_growth(step) : 1;
}

uint64_t pre_tokenizer_growth(const Json& step) {
  const std::string type = json_type(step);
  if (type == "ByteLevel") return 2;  // a space before each piece
  return type == "Metaspace" ? 2 * std::max<uint64_t>(1, json_string(step, "replacement", "\xE2\x96\x81").size()) : 1;
}

uint64_t decoder_growth(const Json& step) { return json_type(step) == "Replace" ? replace_growth(step) : 1; }

}  // namespace baton::text
