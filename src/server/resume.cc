#include "server/resume.h"

#include <utility>

namespace baton::server {

Parsed<std::vector<TokenId>> take_resume(CommonFields& fields, std::span<PromptInput> prompts) {
  std::vector<TokenId> outputs;
  if (!fields.kv_transfer || fields.kv_transfer->resume_token_ids.empty()) return outputs;
  auto& params = *fields.kv_transfer;
  auto tokens = std::exchange(params.resume_token_ids, {});
  const auto output_count = std::exchange(params.resume_output_count, std::nullopt).value_or(0);
  const auto refused = [](std::string why) {
    return std::unexpected(bad_request("a request can't be resumed " + std::move(why), "kv_transfer_params"));
  };
  if (prompts.size() != 1 || fields.n != 1) return refused("with several prompts or choices");
  if (fields.sampling.prompt_logprobs) return refused("with prompt_logprobs");
  if (output_count >= fields.sampling.max_tokens) {
    return refused(fmt::format("with {} tokens generated: max_tokens is {}", output_count, fields.sampling.max_tokens));
  }
  const auto prompt_end = tokens.end() - output_count;
  outputs.assign(prompt_end, tokens.end());
  tokens.erase(prompt_end, tokens.end());
  prompts[0].ids = std::move(tokens);
  fields.sampling.max_tokens -= static_cast<int>(output_count);
  return outputs;
}

}  // namespace baton::server
