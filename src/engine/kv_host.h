// Where the engine's KV lives and how it leaves: the memory of the arena and the two ends of a hand-off. The engine
// asks for it once, when it knows the cache's geometry; apps decides what it is (a private buffer, a shared-memory
// arena with connectors over it).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/strong_id.h"
#include "kv/cache_layout.h"
#include "transfer/connector.h"

namespace baton::engine {

// What a host must provide for.
struct KvHostRequest {
  // The ranks of this process, at least one. The numbers of blocks and slots are the same on all: one block number, one
  // slot number serves them all.
  std::vector<kv::RankCache> ranks;
  int context_size = 1;   // over how many ranks a sequence's positions are spread
  int process_count = 1;  // that the engine's ranks live in
  std::string model_fingerprint;
  // May be called from any thread until the host is destroyed: makes the engine poll its connectors.
  transfer::WakeEngine wake;
};

// Owned by the engine, destroyed after its thread has ended. Calls come on the engine thread.
class KvHost {
 public:
  virtual ~KvHost() = default;
  // Of ranks[rank]: its layout.data_bytes() bytes, 64-byte aligned: blocks, then slots of recurrent state.
  virtual std::byte* memory(int rank) = 0;
  // Null: this engine keeps nothing for others, or takes nothing from them.
  virtual transfer::KvProducer* producer() { return nullptr; }
  virtual transfer::KvConsumer* consumer() { return nullptr; }
  // The block, on all ranks, is about to get new contents: readers of the old ones must notice.
  virtual void on_block_reuse(BlockId) {}
  virtual void on_slot_reuse(int32_t) {}
};

using MakeKvHost = std::function<Result<std::unique_ptr<KvHost>>(KvHostRequest)>;

// A private buffer and no hand-off.
Result<std::unique_ptr<KvHost>> make_private_kv_host(KvHostRequest request);

}  // namespace baton::engine
