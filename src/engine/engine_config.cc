#include "engine/engine_config.h"

#include <algorithm>
#include <string_view>

#include "engine/cache_shape.h"

namespace baton::engine {
namespace {

Result<void> check_positive(int value, std::string_view flag) {
  if (value >= 1) return {};
  return fail(Code::kInvalidArgument, "{} must be at least 1, got {}", flag, value);
}

Result<void> resolve_length(EngineConfig& config, const models::Model& model) {
  if (config.max_model_len == 0) config.max_model_len = model.max_positions();
  BATON_TRY(check_positive(config.max_model_len, "--max-model-len"));
  if (config.max_model_len > model.max_positions()) {
    return fail(Code::kInvalidArgument,
                "User-specified max_model_len ({}) is greater than the derived max_model_len ({}) of the model. Lower "
                "--max-model-len.",
                config.max_model_len, model.max_positions());
  }
  return {};
}

}  // namespace

Result<EngineConfig> resolve_config(EngineConfig config, const models::Model& model) {
  BATON_TRY(resolve_length(config, model));
  BATON_TRY(resolve_cache_dtypes(config, model));
  BATON_TRY(check_positive(config.max_num_seqs, "--max-num-seqs"));
  BATON_TRY(check_positive(config.max_num_batched_tokens, "--max-num-batched-tokens"));
  BATON_TRY(check_positive(config.block_size, "--block-size"));
  BATON_TRY(check_positive(config.max_waiting_requests, "the bound of waiting requests"));
  if (config.max_num_batched_tokens < config.max_num_seqs) {
    return fail(Code::kInvalidArgument,
                "max_num_batched_tokens ({}) must be greater than or equal to max_num_seqs ({}).",
                config.max_num_batched_tokens, config.max_num_seqs);
  }
  const auto role = config.kv_transfer.role;
  if (config.recompute_scheduler && role != KvRole::kConsumer && role != KvRole::kProducer) {
    return fail(Code::kInvalidArgument,
                "the recompute scheduler sends requests back through the proxy to a prefill engine: it needs kv_role "
                "kv_consumer in --kv-transfer-config");
  }
  if (role == KvRole::kProducer) config.recompute_scheduler = false;
  if (config.long_prefill_token_threshold < 0 || config.long_prefill_token_threshold > config.max_model_len) {
    return fail(Code::kInvalidArgument, "--long-prefill-token-threshold ({}) must be between 0 and max_model_len ({})",
                config.long_prefill_token_threshold, config.max_model_len);
  }
  if (!(config.memory_utilization > 0 && config.memory_utilization <= 1)) {
    return fail(Code::kInvalidArgument, "GPU memory utilization must be in (0, 1], got {}", config.memory_utilization);
  }
  if (config.kv_cache_bytes < 0) {
    return fail(Code::kInvalidArgument, "--kv-cache-memory-bytes must not be negative, got {}", config.kv_cache_bytes);
  }
  if (config.state_cache_bytes < 0) {
    return fail(Code::kInvalidArgument, "--state-cache-memory-bytes must not be negative, got {}",
                config.state_cache_bytes);
  }
  if (config.state_snapshot_interval < 0) {
    return fail(Code::kInvalidArgument, "--state-snapshot-interval must not be negative, got {}",
                config.state_snapshot_interval);
  }
  for (const auto token : config.eos_token_ids) {
    if (token < 0 || token >= model.vocab_size()) {
      return fail(Code::kInvalidArgument, "end token {} is outside the vocabulary of {}", token, model.vocab_size());
    }
  }
  return config;
}

SchedulerOptions scheduler_options(const EngineConfig& config) {
  return {.max_model_len = config.max_model_len,
          .max_num_batched_tokens = config.max_num_batched_tokens,
          .max_num_seqs = config.max_num_seqs,
          .long_prefill_token_threshold = config.long_prefill_token_threshold,
          .max_prompt_logit_rows = kMaxPromptLogitRows,
          .state_snapshot_interval = config.state_snapshot_interval,
          .priority_scheduling = config.priority_scheduling,
          .recompute_elsewhere = config.recompute_scheduler,
          .eos_token_ids = config.eos_token_ids,
          .test_preempt_probability = config.test_preempt_probability};
}

int max_logit_rows(const EngineConfig& config) {
  return std::min(config.max_num_seqs + kMaxPromptLogitRows, config.max_num_batched_tokens);
}

}  // namespace baton::engine
