// What the state machine's tests share: two engines of each role, and a request.
#pragma once

#include <gtest/gtest.h>

#include "proxy/request_fsm.h"

namespace baton::proxy {

using namespace std::chrono_literals;

inline constexpr auto kParams =
    R"({"do_remote_prefill":true,"remote_engine_id":"p0","remote_block_ids":[[1,2]],"x_new":7})";

inline net::HttpResponse answer(int status, std::string body) {
  return {.status = status, .headers = {}, .body = body};
}
inline PrefillAnswered prefilled(std::string extra = "") {
  return {
      answer(200, R"({"choices":[{"index":0,"text":"a"}],"kv_transfer_params":)" + std::string(kParams) + extra + "}")};
}
template <typename T>
const T* find(const std::vector<Action>& actions) {
  for (const auto& each : actions)
    if (const auto* found = std::get_if<T>(&each)) return found;
  return nullptr;
}
template <typename T>
bool ends_with(const std::vector<Action>& actions) {
  return !actions.empty() && std::holds_alternative<T>(actions.back());
}

class FsmTest : public testing::Test {
 protected:
  FsmTest() {
    for (int i = 0; i < 2; ++i) {
      p_[i] = *instances_.add(Role::kPrefill, "p", i);
      d_[i] = *instances_.add(Role::kDecode, "d", i);
      instances_.note_probe(p_[i], Outcome::kOk, now_);
      instances_.note_probe(d_[i], Outcome::kOk, now_);
    }
  }
  void make(std::string body, std::string path = "/v1/completions", int max_retries = 3,
            std::optional<DecodeFirst> decode_first = {}) {
    fsm_ = std::make_unique<RequestFsm>(plan_request(path, body).value(), "id", RetryPolicy{.max_retries = max_retries},
                                        instances_, std::move(decode_first));
  }
  std::vector<Action> feed(Event event) { return fsm_->handle(std::move(event), now_ += 1ms); }
  // Up to the first read of D's stream.
  void to_streaming(std::string extra = "") {
    feed(Begin{});
    feed(prefilled(extra));
    EXPECT_TRUE(ends_with<ReadDecode>(feed(DecodeStreaming{})));
  }
  std::string written(const std::vector<Action>& actions) {
    std::string all;
    for (const auto& each : actions)
      if (const auto* write = std::get_if<WriteEvent>(&each)) all += write->data + "\n";
    return all;
  }
  void expect_no_charges() {
    for (const auto& each : instances_.all()) {
      EXPECT_NEAR(each.active_tokens, 0, 1e-6) << each.host << each.port;
      EXPECT_NEAR(each.active_kv, 0, 1e-6) << each.host << each.port;
      EXPECT_EQ(each.in_flight, 0) << each.host << each.port;
    }
  }
  const Instance& at(InstanceId id) { return *instances_.find(id); }

  TimePoint now_{1000s};
  Instances instances_;
  InstanceId p_[2], d_[2];
  std::unique_ptr<RequestFsm> fsm_;
};

}  // namespace baton::proxy
