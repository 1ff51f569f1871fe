// An engine that answers every request with the same tokens. What it is told is kept for the test to look at.
#pragma once

#include <mutex>
#include <vector>

#include "engine/engine.h"

namespace baton::server::testing {

class ScriptedEngine final : public engine::Engine {
 public:
  struct Script {
    std::vector<TokenId> answer;  // the last one is the end token
    size_t tokens_per_output = 1;
    int vocab_size = 300;
  };
  explicit ScriptedEngine(Script script) : script_(std::move(script)) { config_.max_model_len = 4096; }

  // The whole answer comes before this returns, as callbacks.
  Result<void> submit(engine::EngineRequest request, engine::OutputCallback on_output) override {
    const size_t most = static_cast<size_t>(request.sampling.max_tokens);
    const size_t count = std::min(most, script_.answer.size());
    for (size_t at = 0; at < count; at += script_.tokens_per_output) {
      engine::RequestOutput output{.id = request.id};
      for (size_t i = at; i < std::min(at + script_.tokens_per_output, count); ++i) {
        engine::GeneratedToken token{.token = script_.answer[i]};
        if (request.sampling.logprobs)
          token.logprob = engine::TokenLogprob{.token = token.token, .logprob = -1, .rank = 1};
        output.tokens.push_back(std::move(token));
      }
      if (at + script_.tokens_per_output >= count) {
        output.finish = count < script_.answer.size() ? engine::FinishReason::kLength : engine::FinishReason::kStop;
      }
      on_output(std::move(output));
    }
    std::lock_guard lock(mutex_);
    requests_.push_back(std::move(request));
    return {};
  }
  std::vector<engine::EngineRequest> requests() const {
    std::lock_guard lock(mutex_);
    return requests_;
  }

  void abort(const std::string&) override {}
  void finish(const std::string&) override {}
  int64_t abort_all() override { return 0; }
  void reset_prefix_cache() override {}
  engine::EngineStats stats() const override { return {}; }
  bool healthy() const override { return true; }
  std::string health_reason() const override { return {}; }
  const engine::EngineConfig& config() const override { return config_; }
  int vocab_size() const override { return script_.vocab_size; }
  void drain(Duration) override {}

 private:
  Script script_;
  engine::EngineConfig config_;
  mutable std::mutex mutex_;
  std::vector<engine::EngineRequest> requests_;
};

}  // namespace baton::server::testing
