#include "models/tensor_table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

namespace baton::models {
namespace {

constexpr size_t kMistakesShown = 5;
constexpr std::string_view kWeight = ".weight";

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

std::string wrong_shape(const std::string& name, const std::vector<int64_t>& found,
                        const std::vector<int64_t>& wanted) {
  return fmt::format("{} has shape {}, the configuration asks for {}", name, shape_text(found), shape_text(wanted));
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

bool TensorTable::is_ignored(std::string_view name) const {
  for (const std::string& pattern : ignored_) {
    if (matches(pattern, name)) return true;
  }
  return false;
}

struct TensorTable::Findings {
  std::vector<std::string> mistakes;
  std::set<std::string_view> known;  // names that belong to what is required
  std::set<std::string> broken;      // "base." of matrices that are wrong: their parts are no mistakes of their own
};

void TensorTable::check_tensor(const weights::Checkpoint& checkpoint, const std::string& name,
                               const std::vector<int64_t>& shape, Findings& findings) const {
  const auto it = checkpoint.tensors().find(name);
  if (it == checkpoint.tensors().end()) {
    findings.mistakes.push_back(fmt::format("{} {} is missing", name, shape_text(shape)));
    return;
  }
  findings.known.insert(it->first);
  if (it->second.shape != shape) findings.mistakes.push_back(wrong_shape(name, it->second.shape, shape));
}

void TensorTable::check_matrix(const weights::Checkpoint& checkpoint, const weights::WeightFormats& formats,
                               const std::string& name, const std::vector<int64_t>& shape, Findings& findings) const {
  const auto& tensors = checkpoint.tensors();
  const std::string base = name.substr(0, name.size() - kWeight.size());
  if (!tensors.contains(name) && !tensors.contains(base + ".weight_packed")) {
    findings.broken.insert(base + ".");
    findings.mistakes.push_back(fmt::format("{} {} is missing", name, shape_text(shape)));
    return;
  }
  const auto source = formats.find(name, weights::Values::kSkip);
  if (!source) {
    findings.broken.insert(base + ".");
    findings.mistakes.push_back(source.error().message());
    return;
  }
  for (const weights::TensorEntry* part : source->parts) findings.known.insert(part->name);
  const std::vector<int64_t> found{source->rows, source->columns};
  if (found != shape) findings.mistakes.push_back(wrong_shape(name, found, shape));
}

Result<void> TensorTable::check(const weights::Checkpoint& checkpoint, std::string_view quantization) const {
  BATON_TRY_ASSIGN(const auto formats, weights::WeightFormats::open(checkpoint, quantization));
  Findings findings;
  for (const auto& [name, shape] : shapes_) {
    if (shape.size() == 2 && name.ends_with(kWeight)) {
      check_matrix(checkpoint, formats, name, shape, findings);
    } else {
      check_tensor(checkpoint, name, shape, findings);
    }
  }
  for (const auto& [name, size] : padded_) {
    const auto it = checkpoint.tensors().find(name);
    if (it == checkpoint.tensors().end()) {
      findings.mistakes.push_back(fmt::format("{} [{}] is missing", name, size));
    } else if (!holds_padded(it->second.shape, size)) {
      findings.mistakes.push_back(fmt::format("{} has shape {}, the configuration asks for a vector of at least {}",
                                              name, shape_text(it->second.shape), size));
    }
  }
  auto& mistakes = findings.mistakes;
  const auto belongs_to_broken = [&](const std::string& name) {
    const size_t dot = name.rfind('.');
    return dot != std::string::npos && findings.broken.contains(name.substr(0, dot + 1));
  };
  for (const auto& [name, entry] : checkpoint.tensors()) {
    if (!findings.known.contains(name) && !shapes_.contains(name) && !padded_.contains(name) &&
        !belongs_to_broken(name) && !is_ignored(name)) {
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
