// The two ends of a hand-off inside one process: blocks are copied from the producer's arena to the consumer's. Faults
// are set by the test. Any thread.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/kv_host.h"

namespace baton::engine::testing {

enum class TwinSide : uint8_t { kNone, kProducer, kConsumer };

// What stands between the ends.
class TwinLink {
 public:
  // How many tokens of a pull arrive whole; the rest is garbage. Default: all. Called on the consumer's engine thread.
  std::function<int64_t(const transfer::Pull&)> valid_tokens;
  // Whether recurrent state that was asked for arrives whole. Default: when all tokens do.
  std::function<bool(const transfer::Pull&)> valid_state;
  // Pulls complete only when deliver() is called.
  bool manual = false;

  // Arenas of the ranks of a side, over which a sequence's positions are spread context_size-fold. Both sides are the
  // same grid.
  struct Arena {
    std::byte* memory = nullptr;
    kv::CacheLayout layout;
  };
  void connect(TwinSide side, std::vector<Arena> ranks, int context_size, transfer::WakeEngine wake);
  void disconnect(TwinSide side);
  void deliver();
  // Ends every lease: the producer's offers come back released.
  void expire();

  struct Counts {
    int offered = 0, revoked = 0, pulled = 0, cancelled = 0, declined = 0;
  };
  Counts counts();

 private:
  friend class TwinProducer;
  friend class TwinConsumer;
  struct Waiting {
    transfer::Pull pull;
    bool cancelled = false;
  };
  // With mutex_ held.
  transfer::PullResult copy(const Waiting& waiting);
  void copy_state(const transfer::Pull& pull, const transfer::Offer& offer, bool whole, transfer::PullResult& result);
  void finish(Waiting waiting);
  void release(const std::string& request_id);

  std::mutex mutex_;
  Counts counts_;
  std::map<std::string, transfer::Offer> offers_;
  std::vector<std::string> released_;
  std::deque<Waiting> waiting_;
  std::vector<transfer::PullResult> completed_;
  std::vector<Arena> source_, target_;  // by rank
  int context_size_ = 1;
  transfer::WakeEngine wake_producer_, wake_consumer_;
};

// A host over a private buffer that fills a block with garbage when it is reused, so that stale reads show. With a link
// it is that side's end.
MakeKvHost make_twin_host(std::shared_ptr<TwinLink> link = nullptr, TwinSide side = TwinSide::kNone);

}  // namespace baton::engine::testing
