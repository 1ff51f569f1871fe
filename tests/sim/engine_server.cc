// What a simulated engine hears and says: the door's rules and the server's JSON, without sockets. Text is the token's
// number, so that a doubled or lost piece shows.
#include "engine/request_check.h"
#include "sim/engine_answer.h"

namespace baton::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

Json head_of(const std::string& id, int64_t created) {
  return {{"id", id}, {"object", "text_completion"}, {"created", created}, {"model", "m"}};
}

std::string text_of(std::span<const TokenId> tokens) {
  std::string text;
  for (const auto token : tokens) text += fmt::format(" {}", token);
  return text;
}

int status_of(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
    case Code::kOutOfRange:
      return 400;
    case Code::kAlreadyExists:
      return 409;
    case Code::kResourceExhausted:
      return 429;
    case Code::kUnavailable:
    case Code::kCancelled:
      return 503;
    default:
      return 500;
  }
}

// "cmpl-c12-retry1" and "c12-retry1" are client 12's.
int client_of(std::string_view id) { return std::atoi(id.data() + id.find('c', id.starts_with("cmpl-") ? 5 : 0) + 1); }

Json kv_json(const wire::KvTransferParams& params) { return Json::parse(params.to_json().dump()); }

}  // namespace

void EngineNode::request(const CallPtr& call) {
  const auto refused = [&] {
    world_.after(microseconds(100), [call] {
      if (!std::exchange(call->closed, true))
        call->on_reply(Result<net::HttpResponse>(fail(Code::kUnavailable, "refused")));
    });
  };
  if (world_.strikes(Fault::kHttpLost, plan_.name)) {
    world_.trace("a request to {} is lost", plan_.name);
    call->silent = true;
    return;
  }
  Duration delay = world_.between(microseconds(50), microseconds(300));
  if (core_ == nullptr) return refused();
  calls_.insert(call);
  process_.after(delay, [this, call] {
    if (!call->closed) serve(call);
  });
}

void EngineNode::hang_up(const CallPtr& call) {
  calls_.erase(call);
  if (call->silent && world_.random() % 2 == 0) return;  // this is lost, too
  process_.after(world_.between(microseconds(50), microseconds(300)), [this, call] {
    for (const auto& [id, answer] : live_) {
      if (answer->call != call) continue;
      commands_.emplace_back([this, id] { core_->abort(id); });
      return plan_step(microseconds(10));
    }
  });
}

void EngineNode::abort_requests(const std::string& request_id) {
  if (world_.strikes(Fault::kHttpLost, plan_.name) || world_.strikes(Fault::kHttpCut, plan_.name)) return;
  process_.after(world_.between(microseconds(50), microseconds(300)), [this, request_id] {
    commands_.emplace_back([this, request_id] { core_->abort(fmt::format("cmpl-{}-0", request_id)); });
    plan_step(microseconds(10));
  });
}

void EngineNode::refuse(const CallPtr& call, int status, const std::string& message) {
  net::HttpResponse response{.status = status, .headers = {}, .body = proxy::error_json(status, "Error", message)};
  if (status == 503) response.headers.add("Retry-After", "1");
  reply(call, Result<net::HttpResponse>(std::move(response)));
}

Result<engine::EngineRequest> EngineNode::parse(const CallPtr& call, Answer& answer) {
  const Json body = Json::parse(call->body);
  engine::EngineRequest request;
  request.id = answer.id + "-0";
  request.prompt_ids = body.at("prompt").get<std::vector<TokenId>>();
  auto& sampling = request.sampling;
  sampling.max_tokens = body.at("max_tokens").get<int>();
  sampling.min_tokens = body.value("min_tokens", 0);
  sampling.temperature = body.value("temperature", 1.0f);
  sampling.frequency_penalty = body.value("frequency_penalty", 0.0f);
  if (body.contains("seed")) sampling.seed = body["seed"].get<uint64_t>();
  answer.stream = body.value("stream", false);
  if (const auto params = body.find("kv_transfer_params"); params != body.end() && params->is_object()) {
    BATON_TRY_ASSIGN(request.kv_transfer, wire::KvTransferParams::from_json(nlohmann::json::parse(params->dump())));
    // server/resume.cc
    auto tokens = std::exchange(request.kv_transfer->resume_token_ids, {});
    const auto outputs = std::exchange(request.kv_transfer->resume_output_count, std::nullopt).value_or(0);
    if (!tokens.empty()) {
      if (outputs >= sampling.max_tokens) return fail(Code::kInvalidArgument, "a request can't be resumed so");
      request.output_ids.assign(tokens.end() - outputs, tokens.end());
      tokens.resize(tokens.size() - static_cast<size_t>(outputs));
      request.prompt_ids = std::move(tokens);
      sampling.max_tokens -= static_cast<int>(outputs);
    }
    request.may_leave = request.kv_transfer->do_remote_prefill;
  }
  answer.prompt = request.prompt_ids;
  answer.resumed = request.output_ids;
  return request;
}

// The door: EngineImpl::admit without its thread.
void EngineNode::serve(const CallPtr& call) {
  if (world_.strikes(Fault::kFull, plan_.name)) {
    world_.trace("{} is full", plan_.name);
    return refuse(call, world_.random() % 2 == 0 ? 503 : 429, "full");
  }
  auto answer = std::make_shared<Answer>();
  answer->call = call;
  answer->id = "cmpl-" + call->request_id;
  answer->created = world_.now().time_since_epoch().count();
  auto request = parse(call, *answer);
  Result<void> good;
  if (!request) good = fail(request.error());
  if (good) good = engine::check_request(*request, {.max_model_len = 96}, vocabulary(world_.scenario().llama));
  if (good && live_.contains(request->id)) good = fail(Code::kAlreadyExists, "the id is in use");
  if (!good) {
    if (request && request->kv_transfer && request->kv_transfer->do_remote_prefill) {
      commands_.emplace_back([this, params = *request->kv_transfer] { core_->decline(params); });
      plan_step(microseconds(10));
    }
    return refuse(call, status_of(good.error().code()), good.error().message());
  }
  auto& seed = request->sampling.seed;
  if (!seed && request->kv_transfer) seed = request->kv_transfer->baton_seed;
  const bool drawn = !seed;
  if (drawn) {
    seed = world_.random();
    seeds_[client_of(call->request_id)].insert(*seed);
  }
  world_.trace("{} takes {}: {} + {} tokens", plan_.name, request->id, answer->prompt.size(), answer->resumed.size());
  live_[request->id] = answer;
  commands_.emplace_back([this, answer, request = std::move(*request), drawn]() mutable {
    core_->submit({.request = std::move(request),
                   .on_output = [this, answer](engine::RequestOutput&& output) { take(answer, std::move(output)); },
                   .arrival = process_.now(),
                   .seed_drawn = drawn});
  });
  plan_step(microseconds(10));
}

void EngineNode::take(const AnswerPtr& answer, engine::RequestOutput&& output) {
  if (output.finish) live_.erase(output.id);
  for (const auto& token : output.tokens) answer->tokens.push_back(token.token);
  if (answer->call->closed) return;
  if (output.error) {
    world_.trace("{} fails {}: {}", plan_.name, output.id, output.error->message());
    const int status = status_of(output.error->code());
    if (!answer->opened) return refuse(answer->call, status, output.error->message());
    reply(answer->call, StreamEvent{proxy::error_json(status, "Error", output.error->message())});
    reply(answer->call, StreamEvent{"[DONE]"});
    return reply(answer->call, StreamEnds{});
  }
  using engine::FinishReason;
  std::string finish;
  if (output.finish) {
    finish = *output.finish == FinishReason::kLength  ? "length"
             : *output.finish == FinishReason::kAbort ? "abort"
                                                      : "stop";
  }
  const bool left = output.finish == FinishReason::kRecomputed;
  if (answer->stream) {
    take_stream(*answer, output, finish, left);
  } else if (output.finish) {
    take_whole(*answer, output, finish, left);
  }
}

namespace {

Json usage_of(size_t prompt, size_t completion) {
  return {{"prompt_tokens", prompt},
          {"total_tokens", prompt + completion},
          {"completion_tokens", completion},
          {"prompt_tokens_details", {{"cached_tokens", 0}}}};
}

Json left_params(uint64_t seed) {
  wire::KvTransferParams params;
  params.baton_seed = seed;
  return kv_json(params);
}

}  // namespace

void EngineNode::take_stream(Answer& answer, const engine::RequestOutput& output, const std::string& finish,
                             bool left) {
  if (!std::exchange(answer.opened, true)) reply(answer.call, StreamBegins{});
  Json chunk = head_of(answer.id, answer.created);
  if (left) {
    chunk["choices"] =
        Json::array({Json{{"index", 0}, {"finish_reason", "stop"}, {"stop_reason", "recomputed"}, {"text", ""}}});
    chunk["kv_transfer_params"] = left_params(output.seed);
    reply(answer.call, StreamEvent{chunk.dump()});
    reply(answer.call, StreamEvent{"[DONE]"});
    return reply(answer.call, StreamEnds{});
  }
  std::vector<TokenId> tokens;
  for (const auto& token : output.tokens) tokens.push_back(token.token);
  const bool first = answer.resumed.empty() && answer.tokens.size() == tokens.size();
  chunk["choices"] = Json::array({Json{{"index", 0},
                                       {"text", text_of(tokens)},
                                       {"logprobs", nullptr},
                                       {"finish_reason", finish.empty() ? Json(nullptr) : Json(finish)},
                                       {"stop_reason", nullptr},
                                       {"token_ids", tokens},
                                       {"prompt_token_ids", first ? Json(answer.prompt) : Json(nullptr)}}});
  reply(answer.call, StreamEvent{chunk.dump()});
  if (finish.empty()) return;
  Json last = head_of(answer.id, answer.created);
  last["choices"] = Json::array();
  last["usage"] = usage_of(answer.prompt.size(), answer.resumed.size() + answer.tokens.size());
  reply(answer.call, StreamEvent{last.dump()});
  reply(answer.call, StreamEvent{"[DONE]"});
  reply(answer.call, StreamEnds{});
}

void EngineNode::take_whole(Answer& answer, const engine::RequestOutput& output, const std::string& finish, bool left) {
  std::vector<TokenId> all = answer.resumed;
  all.insert(all.end(), answer.tokens.begin(), answer.tokens.end());
  Json body = head_of(answer.id, answer.created);
  body["choices"] = Json::array({Json{{"index", 0},
                                      {"text", text_of(all)},
                                      {"logprobs", nullptr},
                                      {"finish_reason", finish},
                                      {"stop_reason", left ? Json("recomputed") : Json(nullptr)},
                                      {"token_ids", all},
                                      {"prompt_token_ids", answer.prompt}}});
  body["usage"] = usage_of(answer.prompt.size(), all.size());
  body["kv_transfer_params"] = nullptr;
  if (left) body["kv_transfer_params"] = left_params(output.seed);
  if (output.kv_transfer) body["kv_transfer_params"] = kv_json(*output.kv_transfer);
  reply(answer.call, Result<net::HttpResponse>(net::HttpResponse{.status = 200, .headers = {}, .body = body.dump()}));
}

void EngineNode::reply(const CallPtr& call, Reply reply) {
  if (call->closed || call->silent) return;
  const auto* ends = std::get_if<StreamEnds>(&reply);
  const bool last = ends != nullptr || std::holds_alternative<Result<net::HttpResponse>>(reply);
  if (last) calls_.erase(call);
  if (world_.strikes(Fault::kHttpLost, plan_.name)) {
    world_.trace("{} falls silent to {}", plan_.name, call->request_id);
    call->silent = true;
    return;
  }
  const bool cut = world_.strikes(Fault::kHttpCut, plan_.name);
  if (cut) {
    world_.trace("the call of {} at {} breaks", call->request_id, plan_.name);
    call->silent = true;
    const auto reset = fail(Code::kUnavailable, "connection reset");
    reply = call->begun ? Reply(StreamEnds{reset}) : Reply(Result<net::HttpResponse>(reset));
    if (!last) {
      process_.after(microseconds(100), [this, call] {
        for (const auto& [id, answer] : live_) {
          if (answer->call != call) continue;
          commands_.emplace_back([this, id] { core_->abort(id); });
          return plan_step(microseconds(10));
        }
      });
    }
  }
  if (std::holds_alternative<StreamBegins>(reply)) call->begun = true;
  call->last_to_proxy =
      std::max(world_.now() + world_.between(microseconds(50), microseconds(300)), call->last_to_proxy + Duration(1));
  world_.at(call->last_to_proxy, [call, reply = std::move(reply)] {
    if (!call->closed) call->on_reply(reply);
  });
}

}  // namespace baton::sim
