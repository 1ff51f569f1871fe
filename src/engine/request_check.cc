#include "engine/request_check.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

namespace baton::engine {
namespace {

Result<void> check_ids(std::span<const TokenId> ids, std::string_view what, int vocab_size) {
  for (const auto id : ids) {
    if (id < 0 || id >= vocab_size) {
      return fail(Code::kInvalidArgument, "token_id {} in {} is out of vocabulary. Vocabulary size: {}", id, what,
                  vocab_size);
    }
  }
  return {};
}

// False for NaN, too.
bool within(float value, float low, float high) { return value >= low && value <= high; }

Result<void> check_numbers(const SamplingParams& params) {
  const auto bad = Code::kInvalidArgument;
  if (!within(params.presence_penalty, -2, 2)) {
    return fail(bad, "presence_penalty must be in [-2, 2], got {}.", params.presence_penalty);
  }
  if (!within(params.frequency_penalty, -2, 2)) {
    return fail(bad, "frequency_penalty must be in [-2, 2], got {}.", params.frequency_penalty);
  }
  if (!(params.repetition_penalty > 0) || !std::isfinite(params.repetition_penalty)) {
    return fail(bad, "repetition_penalty must be greater than zero, got {}.", params.repetition_penalty);
  }
  if (!(params.temperature >= 0) || !std::isfinite(params.temperature)) {
    return fail(bad, "temperature must be non-negative, got {}.", params.temperature);
  }
  if (!(params.top_p > 0 && params.top_p <= 1)) return fail(bad, "top_p must be in (0, 1], got {}.", params.top_p);
  if (params.top_k < -1) return fail(bad, "top_k must be 0 (disable), or at least 1, got {}.", params.top_k);
  if (!within(params.min_p, 0, 1)) return fail(bad, "min_p must be in [0, 1], got {}.", params.min_p);
  if (params.max_tokens < 1) return fail(bad, "max_tokens must be at least 1, got {}.", params.max_tokens);
  if (params.min_tokens < 0) {
    return fail(bad, "min_tokens must be greater than or equal to 0, got {}.", params.min_tokens);
  }
  return {};
}

Result<void> check_logprobs(std::optional<int> count, std::string_view what, int max_logprobs, int vocab_size) {
  if (!count) return {};
  if (*count < -1) return fail(Code::kInvalidArgument, "{} must be non-negative or -1, got {}.", what, *count);
  const int wanted = *count < 0 ? vocab_size : *count;
  const int allowed = max_logprobs < 0 ? vocab_size : max_logprobs;
  if (wanted > allowed) {
    return fail(Code::kInvalidArgument, "Requested {} of {}, which is greater than max allowed: {}", what, wanted,
                allowed);
  }
  return {};
}

Result<void> check_token_lists(const SamplingParams& params, int vocab_size) {
  BATON_TRY(check_ids(params.allowed_token_ids, "allowed_token_ids", vocab_size));
  BATON_TRY(check_ids(params.stop_token_ids, "stop_token_ids", vocab_size));
  for (const auto& word : params.bad_words) BATON_TRY(check_ids(word, "bad_words", vocab_size));
  for (const auto& [token, bias] : params.logit_bias) {
    BATON_TRY(check_ids(std::span(&token, 1), "logit_bias", vocab_size));
    if (!std::isfinite(bias)) return fail(Code::kInvalidArgument, "logit_bias of token {} is not finite", token);
  }
  return {};
}

}  // namespace

Result<void> check_request(const EngineRequest& request, const EngineConfig& config, int vocab_size) {
  const auto& params = request.sampling;
  if (request.id.empty()) return fail(Code::kInvalidArgument, "the request id is empty");
  if (request.prompt_ids.empty()) return fail(Code::kInvalidArgument, "The decoder prompt cannot be empty");
  BATON_TRY(check_ids(request.prompt_ids, "the prompt", vocab_size));
  BATON_TRY(check_ids(request.output_ids, "the resumed output", vocab_size));
  const auto given = static_cast<int64_t>(request.prompt_ids.size() + request.output_ids.size());
  if (given >= config.max_model_len) {
    return fail(Code::kInvalidArgument,
                "This model's maximum context length is {} tokens. However, your request has {} input tokens. Please "
                "reduce the length of the input messages, so that at least one token can be generated.",
                config.max_model_len, given);
  }
  BATON_TRY(check_numbers(params));
  // A resumed request's min_tokens counts from its first output, as max_tokens does not.
  if (params.min_tokens > params.max_tokens + static_cast<int64_t>(request.output_ids.size())) {
    return fail(Code::kInvalidArgument, "min_tokens must be less than or equal to max_tokens={}, got {}.",
                params.max_tokens, params.min_tokens);
  }
  BATON_TRY(check_logprobs(params.logprobs, "sample logprobs", config.max_logprobs, vocab_size));
  BATON_TRY(check_logprobs(params.prompt_logprobs, "prompt logprobs", config.max_logprobs, vocab_size));
  BATON_TRY(check_token_lists(params, vocab_size));
  if (request.priority != 0 && !config.priority_scheduling) {
    return fail(Code::kInvalidArgument,
                "Got priority {} but Priority scheduling is not enabled (--scheduling-policy priority).",
                request.priority);
  }
  if (request.prompt_index < 0 || request.choice_index < 0) {
    return fail(Code::kInvalidArgument, "prompt_index and choice_index must not be negative");
  }
  return {};
}

}  // namespace baton::engine
