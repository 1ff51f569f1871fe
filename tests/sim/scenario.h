// What a simulated run consists of, as plain data: who serves, what is asked, what goes wrong and when. Made from a
// seed; a failing one is shrunk by leaving things out.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/strong_id.h"

namespace baton::sim {

enum class Fault : uint8_t {
  kDrop,       // a hand-off message is lost
  kDelay,      // it comes late
  kReorder,    // it overtakes others
  kDuplicate,  // it comes twice
  kCorrupt,    // a bit of its payload, or of memory that is copied, flips
  kTear,       // its payload ends in other bytes, or another writer comes between two halves of a copy
  kCut,        // the hand-off connection breaks
  kHttpLost,   // a message between proxy and engine never comes
  kHttpCut,    // their connection breaks
  kCrash,      // a process dies and comes back (once, at `begin`)
  kPause,      // a process stands still until `end`
  kSlow,       // a process computes and sends slowly
  kClockJump,  // a process's clock leaps forward (once, at `begin`)
  kFull,       // an engine takes no request: 503 or 429
};
inline constexpr size_t kFaults = 14;
std::string_view fault_name(Fault fault);

struct FaultPlan {
  int id = 0;
  Fault fault = Fault::kDrop;
  Duration begin{0}, end{0};
  double chance = 1;
  std::string node;    // empty: any
  Duration amount{0};  // of a jump; until it comes back
};

struct ClientPlan {
  int id = 0;
  Duration at{0};
  std::vector<TokenId> prompt;
  int max_tokens = 8;
  bool stream = true;
  double temperature = 0, frequency_penalty = 0;
  std::optional<uint64_t> seed;
  std::optional<Duration> leaves_after;
};

struct EnginePlan {
  std::string name;
  bool prefill = false;
  int block_size = 4;
  int64_t blocks = 128;
  int64_t slots = 12;
  bool recompute_scheduler = false;
  double preempt = 0;
};

struct Scenario {
  uint64_t seed = 0;
  std::string kind;
  std::vector<EnginePlan> engines;
  std::vector<ClientPlan> clients;
  std::vector<FaultPlan> faults;
  bool llama = false;    // a small random Llama with real kernels; else the hash model, which a wrong bit changes
  int state_layers = 0;  // of the hash model
  bool shared_memory = true;
  Duration lease = std::chrono::seconds(3);
  Duration frame_time{0};     // of each frame with payload: a thin link
  bool must_succeed = false;  // no fault is planned: all is answered in full, all is handed over
};

// The kinds of runs, in the order of the table.
const std::vector<std::string>& scenario_kinds();
// kind: one of them.
Scenario make_scenario(uint64_t seed, const std::string& kind);
// By seed: the kinds take turns.
std::string kind_of_seed(uint64_t seed, const std::vector<std::string>& kinds);
std::string describe(const Scenario& scenario);

}  // namespace baton::sim
