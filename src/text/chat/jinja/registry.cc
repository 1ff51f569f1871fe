#include "text/chat/jinja/registry.h"

#include <unordered_map>

namespace baton::text::jinja {

namespace {

std::unordered_map<std::string_view, NativeFunction> all_filters() {
  std::unordered_map<std::string_view, NativeFunction> filters;
  for (const auto& part : {text_filters(), layout_filters(), sequence_filters(), selection_filters(),
                           ordering_filters(), value_filters()}) {
    for (const NamedFunction& filter : part) filters.emplace(filter.name, filter.function);
  }
  return filters;
}

}  // namespace

NativeFunction find_filter(std::string_view name) {
  static const auto kFilters = all_filters();
  auto it = kFilters.find(name);
  return it == kFilters.end() ? nullptr : it->second;
}

}  // namespace baton::text::jinja
