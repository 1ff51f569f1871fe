// A regular expression of a tokenizer, run by PCRE2 with its JIT. Immutable after compile(); any thread (each thread
// has its own match memory). A pattern may come from an untrusted file, so every search is bounded in steps, memory
// and, for searches that go on and on, time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace baton::text {

// The CPU time that all searches of one text share, so that what else the machine does never changes a result. It only
// ever ends for patterns that backtrack without end: those of the supported models are linear and need 1 % of it.
class SearchBudget {
 public:
  explicit SearchBudget(size_t text_bytes);
  // Looks at the clock once in a while; true when the time is over, and from then on.
  bool tick() { return spent_ || (++ticks_ % kTicksPerLook == 0 && look()); }
  bool look();

 private:
  static constexpr uint32_t kTicksPerLook = 16;
  std::chrono::nanoseconds limit_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::nanoseconds cpu_start_;
  uint32_t ticks_ = 0;
  bool spent_ = false;
};

class Regex {
 public:
  struct Match {
    size_t begin, end;  // bytes
  };
  // `pattern` in the dialect of tokenizer files (regex_translate.h).
  static Result<Regex> compile(std::string_view pattern);
  // For patterns of our own, in PCRE2's dialect.
  static Result<Regex> compile_pcre(std::string_view pattern);
  // Matches `text` alone, escaped.
  static Result<Regex> literal(std::string_view text);

  // All matches in order, calls `on_match(Match)`. `subject` must be valid UTF-8. Where a bound is hit the rest of the
  // subject counts as without a match; false is returned then.
  template <typename OnMatch>
  bool each_match(std::string_view subject, SearchBudget& budget, OnMatch&& on_match) const;

 private:
  struct Compiled;
  struct CompiledFree {
    void operator()(Compiled* code) const;
  };
  enum class Outcome { kMatch, kNone, kBound };
  Outcome search(std::string_view subject, size_t from, SearchBudget& budget, Match& match) const;

  std::unique_ptr<Compiled, CompiledFree> code_;
};

template <typename OnMatch>
bool Regex::each_match(std::string_view subject, SearchBudget& budget, OnMatch&& on_match) const {
  size_t from = 0;
  std::optional<size_t> last_end;
  while (from <= subject.size()) {
    Match match{};
    const Outcome outcome = search(subject, from, budget, match);
    if (outcome != Outcome::kMatch) return outcome == Outcome::kNone;
    if (match.begin == match.end && last_end == match.end) {  // an empty match right behind the last one is none
      if (from >= subject.size()) break;
      ++from;
      while (from < subject.size() && (static_cast<uint8_t>(subject[from]) & 0xC0) == 0x80) ++from;
      continue;
    }
    from = match.end;
    last_end = match.end;
    on_match(match);
  }
  return true;
}

}  // namespace baton::text
