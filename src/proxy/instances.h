// The engines behind the proxy: their load, their health, who serves the next request. Pure: no sockets, no clock (time
// is an argument), one thread.
//
// Scores are those of vLLM-Ascend's load_balance_proxy_server_example (P first): a request of load L costs a prefill
// engine L/4 * 0.0345 + 120.0745 and a decode engine L; a prefill engine's priority is tokens + 0.3 * kv, the lowest
// wins, ties go to the one added first. Other than there, a prefill engine is charged its tokens while it computes, a
// sick engine is not chosen, and removal waits for that engine's own requests only.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/strong_id.h"

namespace baton::proxy {

enum class Role : uint8_t { kPrefill, kDecode };
inline const char* role_name(Role role) { return role == Role::kPrefill ? "prefill" : "decode"; }

using InstanceId = StrongId<struct InstanceTag, int32_t>;

enum class Health : uint8_t {
  kUp,
  kSuspect,  // not probed yet, slow to answer its last probe, or broken off amid a call: chosen only when none is up
  kDown,     // refuses probes, says that it is sick, or left several in a row without an answer: not chosen
};

// How a call to an instance ended, as far as its health is concerned.
enum class Outcome : uint8_t {
  kOk,
  kUnreachable,  // no connection, or it broke
  kFailed,       // a 5xx other than 501, a malformed answer
  kSlow,         // a deadline passed
};

struct HealthPolicy {
  int failures_to_open = 3;                     // consecutive ones
  int probes_to_close = 2;                      // consecutive good ones since it opened
  int slow_probes_to_down = 3;                  // consecutive ones
  Duration open_for = std::chrono::seconds(1);  // doubled at each opening in a row
  Duration open_for_max = std::chrono::seconds(30);
};

struct Instance {
  InstanceId id;
  Role role = Role::kPrefill;
  std::string host;
  int port = 0;
  Health health = Health::kSuspect;
  bool baton = false;                // says of itself that it is Baton's
  bool draining = false;             // removed; its running requests end first
  std::optional<TimePoint> join_by;  // added at run time and not answering yet; dropped at this time
  double active_tokens = 0;
  double active_kv = 0;
  int in_flight = 0;
  // Circuit breaker.
  int failures = 0;
  int openings = 0;
  int good_probes = 0;  // since it opened
  std::optional<TimePoint> open_until;
  int slow_probes = 0;  // in a row
};

class Instances {
 public:
  explicit Instances(HealthPolicy policy = {}) : policy_(policy) {}

  // `join_by`: it must answer a probe by then, and is not chosen before. An instance that drains is taken back.
  // kAlreadyExists when it is there.
  Result<InstanceId> add(Role role, std::string host, int port, std::optional<TimePoint> join_by = std::nullopt);
  // Gone at once when idle, else after its last request. False when there is none.
  bool remove(Role role, const std::string& host, int port);
  // Drops what has not joined in time.
  void expire(TimePoint now);

  // The best one outside `exclude`, by health first and then by score. A decode engine whose breaker is open is the
  // last choice and better than none; a prefill engine then is not chosen, since decode engines can do without.
  std::optional<InstanceId> pick(Role role, TimePoint now, std::span<const InstanceId> exclude) const;

  // Charges; each has its release. kv is held on a prefill engine until the decode engine's first token.
  void begin_prefill(InstanceId id, double load);
  void end_prefill(InstanceId id, double load);  // the engine has answered: tokens and in-flight
  void release_kv(InstanceId id, double load);
  void begin_decode(InstanceId id, double load);
  void end_decode(InstanceId id, double load);

  void note(InstanceId id, Outcome outcome, TimePoint now);
  void note_probe(InstanceId id, Outcome outcome, TimePoint now, bool baton = false);
  // It broke a stream: it is not up until a probe, which is wished for, says so.
  void doubt(InstanceId id);
  // True once after an instance could not be reached: a probe, not the next request, should find out more.
  bool take_probe_wish() { return std::exchange(probe_wished_, false); }

  const Instance* find(InstanceId id) const;
  const std::vector<Instance>& all() const { return instances_; }
  int count(Role role) const;    // those that are not draining and have joined
  bool any_up(Role role) const;  // by its last probe
  bool any_usable(Role role, TimePoint now) const { return pick(role, now, {}).has_value(); }

 private:
  Instance* get(InstanceId id);
  Instance* get(Role role, const std::string& host, int port);
  void drop_if_drained(InstanceId id);

  HealthPolicy policy_;
  std::vector<Instance> instances_;  // in order of ordinal
  int32_t next_id_ = 0;
  bool probe_wished_ = false;
};

}  // namespace baton::proxy
