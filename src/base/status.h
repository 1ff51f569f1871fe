// Errors as values. Status names what went wrong; Result<T> is a value or a Status.
//
// Expected failures (a peer is gone, a request is bad, a file is broken) travel as Result. Bugs are BATON_CHECK
// (check.h). A message says what was wrong, where, and what to do. Nothing here throws.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace baton {

// The whole table of codes; server/ maps each once to an HTTP status.
enum class Code : uint8_t {
  kInvalidArgument,     // the caller's words are wrong; the same call will fail again
  kNotFound,            // the named thing is not there
  kAlreadyExists,       // the named thing is there already
  kFailedPrecondition,  // right words at the wrong time or in the wrong set-up
  kOutOfRange,          // past a stated limit
  kResourceExhausted,   // a bounded queue, pool or memory budget is full; later may succeed
  kUnimplemented,       // known, but not in this version
  kUnauthenticated,     // no key, or the wrong one
  kUnavailable,         // a peer can't be reached or has gone; another may serve
  kDeadlineExceeded,    // a bounded wait ended
  kCancelled,           // stopped on purpose by its owner
  kDataLoss,            // bytes are not what they must be: checksum, truncated file, torn block
  kMismatch,            // two sides disagree on identity, layout or version
  kInternal,            // a bug that was contained to one request
};

std::string_view code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  // "data_loss: tensor blk.0.attn_q.weight ends at byte 12 of a file of 10"
  std::string to_string() const { return fmt::format("{}: {}", code_name(code_), message_); }
  // The same code, with where it happened put before the message.
  Status with_context(std::string_view where) const { return Status(code_, fmt::format("{}: {}", where, message_)); }

 private:
  Code code_;
  std::string message_;
};

template <typename T>
using Result = std::expected<T, Status>;

template <typename... Args>
std::unexpected<Status> fail(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected<Status>(Status(code, fmt::format(format, std::forward<Args>(args)...)));
}
inline std::unexpected<Status> fail(Status status) { return std::unexpected<Status>(std::move(status)); }

}  // namespace baton

#define BATON_CONCAT_INNER(a, b) a##b
#define BATON_CONCAT(a, b) BATON_CONCAT_INNER(a, b)

// BATON_TRY(do_it());                 returns the error of a Result<void> (or any Result whose value is not wanted)
// BATON_TRY_ASSIGN(auto x, read());   declares or assigns x, or returns the error
#define BATON_TRY(expr)                                                             \
  do {                                                                              \
    if (auto baton_try_result = (expr); !baton_try_result.has_value()) [[unlikely]] \
      return std::unexpected<::baton::Status>(std::move(baton_try_result).error()); \
  } while (false)

#define BATON_TRY_ASSIGN(lhs, expr) BATON_TRY_ASSIGN_INNER(lhs, expr, BATON_CONCAT(baton_try_, __LINE__))
#define BATON_TRY_ASSIGN_INNER(lhs, expr, name)                       \
  auto name = (expr);                                                 \
  if (!name.has_value()) [[unlikely]]                                 \
    return std::unexpected<::baton::Status>(std::move(name).error()); \
  lhs = std::move(name).value()

// The same two inside a coroutine.
#define BATON_CO_TRY(expr)                                                             \
  do {                                                                                 \
    if (auto baton_try_result = (expr); !baton_try_result.has_value()) [[unlikely]]    \
      co_return std::unexpected<::baton::Status>(std::move(baton_try_result).error()); \
  } while (false)

#define BATON_CO_TRY_ASSIGN(lhs, expr) BATON_CO_TRY_ASSIGN_INNER(lhs, expr, BATON_CONCAT(baton_try_, __LINE__))
#define BATON_CO_TRY_ASSIGN_INNER(lhs, expr, name)                       \
  auto name = (expr);                                                    \
  if (!name.has_value()) [[unlikely]]                                    \
    co_return std::unexpected<::baton::Status>(std::move(name).error()); \
  lhs = std::move(name).value()
