#include "models/tensor_table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace baton::models {
namespace {

constexpr size_t kMistakesShown = 5;

bool matches(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (size_t at = star; at <= name.size(); ++at) {
    if (matches(rest, name.substr(at))) return true;
  }
  return false;
}

bool holds_padded(const std::vector<int64_t>& shape, int64_t size) {
  const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  const auto wider = std::ranges::count_if(shape, [](int64_t dimension) { return dimension != 1; });
  return wider <= 1 && count >= size && (shape.size() == 1 || count == size);
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

bool TensorTable::is_ignored(std::string_view name) const {
  for (const std::string& pattern : ignored_) {
    if (matches(pattern, name)) return true;
  }
  return false;
}

Result<void> TensorTable::check(const weights::Checkpoint& checkpoint) const {
  std::vector<std::string> mistakes;
  const auto& tensors = checkpoint.tensors();
  for (const auto& [name, shape] : shapes_) {
    const auto it = tensors.find(name);
    if (it == tensors.end()) {
      mistakes.push_back(fmt::format("{} {} is missing", name, shape_text(shape)));
    } else if (it->second.shape != shape) {
      mistakes.push_back(fmt::format("{} has shape {}, the configuration asks for {}", name,
                                     shape_text(it->second.shape), shape_text(shape)));
    }
  }
  for (const auto& [name, size] : padded_) {
    const auto it = tensors.find(name);
    if (it == tensors.end()) {
      mistakes.push_back(fmt::format("{} [{}] is missing", name, size));
    } else if (!holds_padded(it->second.shape, size)) {
      mistakes.push_back(fmt::format("{} has shape {}, the configuration asks for a vector of at least {}", name,
                                     shape_text(it->second.shape), size));
    }
  }
  for (const auto& [name, entry] : tensors) {
    if (!shapes_.contains(name) && !padded_.contains(name) && !is_ignored(name)) {
      mistakes.push_back(fmt::format("{} {} is not a tensor of this architecture", name, shape_text(entry.shape)));
    }
  }
  if (mistakes.empty()) return {};
  const size_t total = mistakes.size();
  mistakes.resize(std::min(total, kMistakesShown));
  return fail(Code::kDataLoss, "{}: {} tensor{} wrong: {}{}", checkpoint.path(), total, total == 1 ? " is" : "s are",
              fmt::join(mistakes, "; "), total > kMistakesShown ? "; ..." : "");
}

}  // namespace baton::models
