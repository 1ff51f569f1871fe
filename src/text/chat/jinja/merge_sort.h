// A stable sort whose comparison may fail, and that no comparison, however inconsistent (NaN), leads out of bounds.
#pragma once

#include <utility>
#include <vector>

#include "base/status.h"

namespace baton::text::jinja {

// less(a, b) -> Result<bool>; the first error ends the sort.
template <typename T, typename Less>
Result<void> merge_sort(std::vector<T>& items, Less less) {
  std::vector<T> merged(items.size());
  for (size_t width = 1; width < items.size(); width *= 2) {
    for (size_t begin = 0; begin < items.size(); begin += 2 * width) {
      size_t left = begin;
      size_t left_end = std::min(begin + width, items.size());
      size_t right = left_end;
      size_t right_end = std::min(begin + 2 * width, items.size());
      for (size_t out = begin; out < right_end; ++out) {
        bool take_right = left >= left_end;
        if (!take_right && right < right_end) {
          BATON_TRY_ASSIGN(take_right, less(items[right], items[left]));
        }
        merged[out] = std::move(items[take_right ? right++ : left++]);
      }
    }
    std::swap(items, merged);
  }
  return {};
}

}  // namespace baton::text::jinja
