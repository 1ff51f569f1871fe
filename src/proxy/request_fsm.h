// The life of one request through the proxy, as a pure state machine: events in, actions out. No sockets, no clock, no
// threads: time is an argument, and the instances it charges belong to the same thread.
//
//   pick P -> prefill -> pick D -> decode -> answer
//
// Or, D first (layerwise): pick D -> decode, which calls the metaserver -> pick P -> prefill, whose KV P pushes to D
// while D waits. What is about P then are side events: their actions end in CallPrefill or AnswerMetaserver.
//
// A D that answers "recomputed" had no room left: the request goes on elsewhere from the tokens it has, with a prefill
// of all of them, and the client sees one stream. The same is done when D breaks amid a stream whose seed is known.
//
// A failure before the client has had a byte starts again at another P or D, with a new prefill (the old KV may be
// half consumed). An engine that is busy (429, 408, 503 with Retry-After) is passed over for another; when all are, the
// client hears it. What an engine says about the request itself (other 4xx, 501) is the client's answer at once.
// Without any P, D computes the prompt itself. After the first byte a failure that can't be made good becomes an SSE
// error event and [DONE]; a whole answer becomes a 5xx. There is never a 200 with an empty body.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "net/http.h"
#include "proxy/instances.h"
#include "proxy/request_plan.h"

namespace baton::proxy {

// D first: where D announces itself, and a secret of this request.
struct DecodeFirst {
  std::string metaserver;  // URL
  std::string key;
};

struct RetryPolicy {
  int max_retries = 3;                                  // attempts per stage
  Duration retry_delay = std::chrono::milliseconds(1);  // base of the back-off, when the same instance is asked again
};

// ---- events ----
struct Begin {};
struct PrefillAnswered {  // or failed
  Result<net::HttpResponse> answer;
};
struct DecodeAnswered {  // a whole answer, or failed before one. For a stream: anything but 200 with an event stream.
  Result<net::HttpResponse> answer;
};
struct DecodeStreaming {};  // 200, events follow
struct DecodeEvent {
  std::string data;
};
struct DecodeEnded {  // the stream's bytes have ended, well or not
  Result<void> how;
};
struct DelayOver {};
struct ClientGone {};
struct MetaserverCalled {  // D first: D has room for the request and says where the KV goes
  std::string key;         // the one that D was given
  Json params;
};
using Event = std::variant<Begin, PrefillAnswered, DecodeAnswered, DecodeStreaming, DecodeEvent, DecodeEnded, DelayOver,
                           ClientGone, MetaserverCalled>;

// ---- actions ----
struct CallPrefill {
  InstanceId instance;
  std::string request_id, body;
};
struct CallDecode {
  InstanceId instance;
  std::string request_id, body;
};
struct ReadDecode {};  // the next event of the stream
struct Delay {
  Duration time;
};
struct Respond {  // a whole answer; the request is over for the client
  net::HttpResponse response;
};
struct WriteEvent {  // begins the stream at its first use
  std::string data;
};
struct EndStream {};
struct DropDecode {};  // close the connection to D at once
struct AbortPrefill {  // tell P that nobody will fetch its KV
  InstanceId instance;
  std::string request_id;
};
struct AnswerMetaserver {
  int status = 200;
  std::string message;
};
struct DropPrefill {};  // D first: give up the call to P, whose answer is not an event any more
struct Finish {};       // nothing follows
using Action = std::variant<CallPrefill, CallDecode, ReadDecode, Delay, Respond, WriteEvent, EndStream, DropDecode,
                            AbortPrefill, AnswerMetaserver, DropPrefill, Finish>;

class RequestFsm {
 public:
  // What the log line and the metrics say at the end.
  struct Summary {
    int status = 0;  // of the answer; 499: the client left
    std::string failure;
    int prefill_attempts = 0, decode_attempts = 0;
    bool handed_off = false;  // D was given P's KV
    bool colocated = false;   // D alone, although a hand-off was wanted
    bool cut_after_first_byte = false;
    int resumes = 0;     // gone on elsewhere from the tokens there were
    int recomputes = 0;  // of these, those that D had no room for
    int64_t cached_tokens = -1, prompt_tokens = -1, completion_tokens = -1;
    std::optional<TimePoint> prefilled_at, first_byte_at;
    std::optional<InstanceId> prefill, decode;
  };

  // `instances` must outlive it. Destroying it unfinished releases its charges.
  RequestFsm(RequestPlan plan, std::string request_id, RetryPolicy policy, Instances& instances,
             std::optional<DecodeFirst> decode_first = std::nullopt);
  ~RequestFsm();
  RequestFsm(const RequestFsm&) = delete;
  RequestFsm& operator=(const RequestFsm&) = delete;

  // The last action says what to do next: a Call, ReadDecode or Delay brings one event; Finish ends it.
  std::vector<Action> handle(Event event, TimePoint now);

  const Summary& summary() const { return summary_; }
  // The tokens of choice 0 so far: what a stream needs to go on elsewhere.
  const std::vector<TokenId>& prompt_ids() const { return prompt_ids_; }
  const std::vector<TokenId>& output_ids() const { return output_ids_; }

 private:
  enum class Stage : uint8_t { kPrefill, kDecode, kDelay, kFinished };
  struct Failure {
    std::optional<Outcome> outcome = Outcome::kFailed;  // nothing: says nothing about the engine's health
    int status = 502;                                   // what the client gets if nobody else can serve
    std::string message;
    std::optional<net::HttpResponse> pass_on;  // instead of a message of ours
    bool busy = false;                         // the engine has no room now: asking it again at once is no use
  };

  void on(const Begin&);
  void on(PrefillAnswered& event);
  void on(DecodeAnswered& event);
  void on(const DecodeStreaming&);
  void on(DecodeEvent& event);
  void on(DecodeEnded& event);
  void on(const DelayOver&);
  void on(const ClientGone&);

  void on(const MetaserverCalled& event);

  void start();
  void start_prefill();
  void start_decode();
  const ResumePoint* resume_point() const { return resume_ ? &*resume_ : nullptr; }

  // request_resume.cc
  bool can_resume() const;
  void note_recomputed(const AnswerNotes& notes, Json& answer, bool is_chunk);
  void resume_elsewhere(bool recomputed);
  bool end_behind_last_word();
  void make_one_stream(Json& chunk);
  void make_one_answer(Json& answer);

  // request_layerwise.cc
  std::string metaserver_key() const;
  void call_side_prefill();
  void side_prefill_answered(PrefillAnswered& event);
  void side_prefill_failed(Failure failure);
  void drop_side_prefill(bool abort);

  void whole_answer(net::HttpResponse& answer);
  void answer_about_the_request(net::HttpResponse answer);
  static Failure failure_of(const char* stage, const Status& status);
  static Failure failure_of(const char* stage, net::HttpResponse answer);
  void restore_id(Json& answer) const;
  void prefill_failed(Failure failure);
  void decode_failed(Failure failure);
  void retry_later(bool prefill_stage);
  void first_byte();
  void release_prefill();
  void release_decode();
  void release_kv();
  void abort_prefill();
  void give_up(const Failure& failure);
  void finish(int status);
  std::string attempt_id() const;

  const RequestPlan plan_;
  const std::string request_id_;
  const RetryPolicy policy_;
  Instances& instances_;
  const std::optional<DecodeFirst> decode_first_;
  TimePoint now_{};
  std::vector<Action> actions_;

  Stage stage_ = Stage::kPrefill;
  bool retry_prefill_ = false;                  // what follows the delay
  std::optional<InstanceId> prefill_, decode_;  // charged and in flight
  std::optional<InstanceId> kv_at_;             // charged for KV that waits for D
  bool kv_offered_ = false;                     // P has answered: it holds KV under kv_id_
  std::string kv_id_;
  std::vector<InstanceId> tried_prefill_, tried_decode_;
  Json kv_params_ = nullptr;
  int generation_ = 0;  // of attempts: each has an id of its own at the engines, where the last may still be ending
  bool began_ = false;  // the client has had a byte
  bool saw_done_ = false;
  bool saw_finish_ = false, saw_usage_ = false;  // of the client's stream: choice 0's finish_reason, the usage chunk
  std::vector<TokenId> prompt_ids_, output_ids_;
  std::optional<std::string> seed_;             // as the engines have said it
  bool seed_known_ = false;                     // by us, by the client, or none is needed
  bool baton_ = false;                          // the engines are Baton's
  std::optional<ResumePoint> resume_;           // of the attempt at hand
  Json first_head_ = nullptr;                   // id, created, model of the client's stream
  Json logprobs_ = nullptr, before_ = nullptr;  // of a whole answer, what earlier engines have said
  int prefill_tries_ = 0, decode_tries_ = 0;    // since the start or the last resume
  Json side_params_ = nullptr;                  // D first: what D has said
  Summary summary_;
};

}  // namespace baton::proxy
