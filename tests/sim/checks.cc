#include "sim/checks.h"

#include "base/check.h"
#include "wire/ordered_json.h"

namespace baton::sim {
namespace {

using proxy::Json;

// An answer, whole or as a stream, as the client puts it together.
struct Seen {
  std::vector<TokenId> tokens;
  std::string text, finish, error;
  std::set<std::string> ids;
  int64_t completion_tokens = -1;
  bool done = false;
  std::string nonsense;
};

void see_choice(const Json& choice, Seen& seen) {
  for (const auto& token : choice.at("token_ids")) seen.tokens.push_back(token.get<TokenId>());
  seen.text += choice.at("text").get<std::string>();
  if (!choice.at("finish_reason").is_null()) {
    if (!seen.finish.empty()) seen.nonsense = "two ends";
    seen.finish = choice["finish_reason"].get<std::string>();
  }
  if (choice.contains("stop_reason") && choice["stop_reason"] == "recomputed") seen.nonsense = "the proxy's own news";
}

void see(const Json& piece, Seen& seen) {
  if (piece.contains("error")) {
    seen.error = piece["error"].value("message", "?");
    return;
  }
  seen.ids.insert(fmt::format("{} {}", piece.at("id").get<std::string>(), piece.at("created").get<int64_t>()));
  for (const auto& choice : piece.at("choices")) see_choice(choice, seen);
  if (piece.contains("usage") && piece["usage"].is_object()) {
    seen.completion_tokens = piece["usage"].at("completion_tokens").get<int64_t>();
  }
}

Seen see_all(const ClientView& view) {
  Seen seen;
  if (view.response) {
    const Json body = wire::parse_ordered_json(view.response->body, 100).value_or(Json());
    if (!body.is_object()) {
      seen.nonsense = "no JSON object";
    } else {
      see(body, seen);
      if (view.response->status != 200 && seen.error.empty()) seen.nonsense = "an error without a message";
      if (view.response->status == 200 && !seen.error.empty()) seen.nonsense = "an error in a 200";
    }
    seen.done = true;
    return seen;
  }
  for (const auto& event : view.events) {
    if (seen.done) seen.nonsense = "events after [DONE]";
    if (event == "[DONE]") {
      seen.done = true;
      continue;
    }
    see(Json::parse(event), seen);
  }
  return seen;
}

bool is_prefix(const std::vector<TokenId>& tokens, const std::vector<TokenId>& of) {
  return tokens.size() <= of.size() && std::equal(tokens.begin(), tokens.end(), of.begin());
}

}  // namespace

Reference::Reference(const Scenario& scenario) {
  auto core = make_core({.llama = scenario.llama, .state_layers = scenario.state_layers, .prefix_caching = false},
                        pool_, registry_, clock_);
  BATON_CHECK(core.has_value(), "{}", core.error().to_string());
  core_ = *std::move(core);
}

Reference::Expected Reference::tokens_of(const ClientPlan& client, uint64_t seed) {
  Expected expected;
  engine::EngineRequest request{.id = fmt::format("r{}", count_++), .prompt_ids = client.prompt};
  request.sampling.temperature = static_cast<float>(client.temperature);
  request.sampling.frequency_penalty = static_cast<float>(client.frequency_penalty);
  request.sampling.max_tokens = client.max_tokens;
  request.sampling.seed = seed;
  bool over = false;
  core_->submit({.request = std::move(request),
                 .on_output =
                     [&](engine::RequestOutput&& output) {
                       for (const auto& token : output.tokens) expected.tokens.push_back(token.token);
                       if (!output.finish) return;
                       over = true;
                       expected.finish = output.finish == engine::FinishReason::kLength ? "length" : "stop";
                     },
                 .arrival = clock_.now()});
  while (!over) BATON_CHECK(core_->step().has_value());
  return expected;
}

void check_client(World& world, const ClientPlan& client, const ClientView& view, const std::set<uint64_t>& seeds,
                  Reference& reference, RunCounts& counts) {
  ++counts.requests;
  ++(client.temperature == 0 ? counts.greedy : client.seed ? counts.seeded : counts.unseeded);
  const auto wrong = [&](const std::string& what, Wrong how = Wrong::kTokens) {
    world.violation(how, "client {}: {}", client.id, what);
  };
  const Seen seen = see_all(view);
  if (!seen.nonsense.empty()) return wrong(seen.nonsense);
  if (seen.ids.size() > 1) wrong("the answer's id changes");

  // A seed is known by the client, not needed, or one of those that engines have drawn.
  std::set<uint64_t> possible = seeds;
  if (client.seed) possible = {*client.seed};
  if (client.temperature == 0 || possible.empty()) possible = {1};
  const bool failed = !seen.error.empty();
  bool as_expected = false, cut_short = false;
  for (const auto seed : possible) {
    const auto expected = reference.tokens_of(client, seed);
    const bool partial = failed || view.left;
    as_expected |= partial ? is_prefix(seen.tokens, expected.tokens)
                           : seen.tokens == expected.tokens && seen.finish == expected.finish;
    cut_short |= !as_expected && is_prefix(seen.tokens, expected.tokens);
  }
  if (!as_expected) {
    wrong(fmt::format("wrong tokens or end: {} {}", fmt::join(seen.tokens, " "), seen.finish),
          cut_short ? Wrong::kSilent200 : Wrong::kTokens);
  }
  std::string text;
  for (const auto token : seen.tokens) text += fmt::format(" {}", token);
  if (text != seen.text) wrong(fmt::format("the text is '{}', of tokens '{}'", seen.text, text));
  if (view.left) {
    ++counts.left;
    return;
  }
  if (!seen.done) wrong("the stream ends without [DONE]", Wrong::kSilent200);
  if (failed) {
    ++(view.response ? counts.errors : counts.cut);
    if (world.scenario().must_succeed) wrong("fails: " + seen.error, Wrong::kOther);
    return;
  }
  ++counts.full;
  if (seen.finish.empty()) wrong("a 200 without an end", Wrong::kSilent200);
  if (seen.completion_tokens != std::ssize(seen.tokens)) {
    wrong(fmt::format("usage says {} tokens of {}", seen.completion_tokens, seen.tokens.size()));
  }
}

}  // namespace baton::sim
