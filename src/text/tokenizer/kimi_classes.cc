#include "text/tokenizer/kimi_classes.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "text/tokenizer/kimi_unicode_data.h"
#include "text/tokenizer/unicode.h"

namespace baton::text {
namespace {

template <typename Range, size_t kCount>
const Range* find_range(const Range (&ranges)[kCount], int32_t code_point) {
  const Range* at = std::upper_bound(std::begin(ranges), std::end(ranges), code_point,
                                     [](int32_t c, const Range& range) { return c < range.first; });
  return at != std::begin(ranges) && code_point <= std::prev(at)->last ? std::prev(at) : nullptr;
}

uint8_t class_of_category(int32_t code_point) {
  switch (utf8proc_category(code_point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      return kKimiUpper | kKimiLetter;
    case UTF8PROC_CATEGORY_LL:
      return kKimiLower | kKimiLetter;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kKimiUpper | kKimiLower | kKimiLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kKimiUpper | kKimiLower;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return kKimiNumber;
    default:
      return 0;
  }
}

}  // namespace

uint8_t KimiClasses::look_up(int32_t code_point) {
  if (const auto* later = find_range(kimi_data::kLater, code_point)) return later->flags;
  if (is_white_space(code_point)) return kKimiSpace;
  const uint8_t flags = class_of_category(code_point);
  if (!find_range(kimi_data::kHan, code_point)) return flags;
  return static_cast<uint8_t>((flags & ~(kKimiUpper | kKimiLower)) | kKimiHan);
}

KimiClasses::KimiClasses() : table_(std::make_unique<uint8_t[]>(kTableSize)) {
  for (uint32_t c = 0; c < kTableSize; ++c) table_[c] = look_up(static_cast<int32_t>(c));
}

const KimiClasses& KimiClasses::get() {
  static const KimiClasses classes;
  return classes;
}

}  // namespace baton::text
