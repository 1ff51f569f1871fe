#include "text/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <time.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "text/tokenizer/regex_translate.h"

namespace baton::text {
namespace {

constexpr uint32_t kMatchLimit = 1'000'000;  // steps from one starting place
constexpr uint32_t kDepthLimit = 100'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr size_t kJitStackMax = 8u << 20;
constexpr size_t kStartsPerSlice = 256;  // starting places tried between two looks at the clock
constexpr auto kTimeBase = std::chrono::seconds(2);
constexpr auto kTimePerMegabyte = std::chrono::seconds(2);

std::chrono::nanoseconds thread_cpu_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

// What one thread needs to match, made on first use.
struct ThreadMemory {
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* jit_stack = pcre2_jit_stack_create(32 << 10, kJitStackMax, nullptr);
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  ThreadMemory() {
    if (!ready()) return;
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_depth_limit(context, kDepthLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
    if (jit_stack) pcre2_jit_stack_assign(context, nullptr, jit_stack);
  }
  ~ThreadMemory() {
    pcre2_match_data_free(data);
    if (jit_stack) pcre2_jit_stack_free(jit_stack);
    pcre2_match_context_free(context);
  }
  ThreadMemory(const ThreadMemory&) = delete;
  ThreadMemory& operator=(const ThreadMemory&) = delete;
  bool ready() const { return context && data; }
};

ThreadMemory& thread_memory() {
  thread_local ThreadMemory memory;
  return memory;
}

}  // namespace

SearchBudget::SearchBudget(size_t text_bytes)
    : limit_(kTimeBase + kTimePerMegabyte * (text_bytes >> 20)),
      start_(std::chrono::steady_clock::now()),
      cpu_start_(thread_cpu_time()) {}

bool SearchBudget::look() {
  // The cheap clock first: no thread uses more CPU time than passes.
  if (std::chrono::steady_clock::now() - start_ < limit_) return spent_;
  spent_ = spent_ || thread_cpu_time() - cpu_start_ > limit_;
  return spent_;
}

struct Regex::Compiled {
  pcre2_code* pcre;
};

void Regex::CompiledFree::operator()(Compiled* code) const {
  pcre2_code_free(code->pcre);
  delete code;
}

Result<Regex> Regex::compile(std::string_view pattern) {
  BATON_TRY_ASSIGN(const std::string translated, translate_regex(pattern));
  auto regex = compile_pcre(translated);
  if (!regex) return fail(regex.error().with_context(fmt::format("regex \"{}\"", pattern)));
  return regex;
}

Result<Regex> Regex::literal(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (static_cast<uint8_t>(c) < 0x80 && !std::isalnum(static_cast<uint8_t>(c))) {
      escaped += fmt::format("\\x{{{:x}}}", static_cast<uint8_t>(c));
    } else {
      escaped += c;
    }
  }
  return compile_pcre(escaped);
}

Result<Regex> Regex::compile_pcre(std::string_view pattern) {
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  if (!context) return fail(Code::kResourceExhausted, "no memory to compile a regex");
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context, 100);
  pcre2_set_max_pattern_length(context, 1 << 20);
  int error = 0;
  PCRE2_SIZE offset = 0;
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (!code) {
    unsigned char words[256] = {};
    pcre2_get_error_message(error, words, sizeof words);
    return fail(Code::kInvalidArgument, "{} (at byte {} of \"{}\")", reinterpret_cast<const char*>(words), offset,
                pattern);
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without JIT the interpreter serves
  Regex regex;
  regex.code_.reset(new Regex::Compiled{code});
  return regex;
}

Regex::Outcome Regex::search(std::string_view subject, size_t from, SearchBudget& budget, Match& match) const {
  if (budget.tick()) return Outcome::kBound;
  ThreadMemory& memory = thread_memory();
  if (!memory.ready()) return Outcome::kBound;
  const auto* bytes = reinterpret_cast<PCRE2_SPTR>(subject.data());
  for (;;) {
    const bool last = subject.size() - from <= kStartsPerSlice;
    pcre2_set_offset_limit(memory.context, last ? PCRE2_UNSET : from + kStartsPerSlice);
    int rc = pcre2_match(code_->pcre, bytes, subject.size(), from, PCRE2_NO_UTF_CHECK, memory.data, memory.context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code_->pcre, bytes, subject.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, memory.data,
                       memory.context);
    }
    if (rc >= 0) {
      const PCRE2_SIZE* span = pcre2_get_ovector_pointer(memory.data);
      // \K in a look-around can put the end before the start, or the start before the search.
      if (span[0] > span[1] || span[0] < from) return Outcome::kBound;
      match = {span[0], span[1]};
      return Outcome::kMatch;
    }
    if (rc != PCRE2_ERROR_NOMATCH) return Outcome::kBound;
    if (last) return Outcome::kNone;
    if (budget.look()) return Outcome::kBound;
    from += kStartsPerSlice + 1;
    while (from < subject.size() && (static_cast<uint8_t>(subject[from]) & 0xC0) == 0x80) ++from;
  }
}

}  // namespace baton::text
