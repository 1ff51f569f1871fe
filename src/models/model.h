// A model as the engine's worker sees it: what it caches, and one forward pass over a step's rows.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/compute_pool.h"
#include "base/status.h"
#include "kernels/kv_view.h"
#include "parallel/grid.h"
#include "parallel/group.h"
#include "tensor/cpu.h"
#include "tensor/dtype.h"

namespace baton::models {

// Which part of the whole model's cache an entry of a rank is.
struct EntryPart {
  int index = 0;  // among the entries of the whole model
  int first_head = 0;
  int total_heads = 1;
  bool operator==(const EntryPart&) const = default;
};

// What a model (a rank's share of it) keeps of a sequence between steps.
struct CacheNeeds {
  // Per token. The model's own order; dtypes are the engine's to set.
  std::vector<kernels::PagedEntry> paged;
  std::vector<EntryPart> parts;  // of `paged`, one each
  // Per sequence: [layer][head][head_bytes], fp32. 0 layers: none.
  int state_layers = 0;
  int state_heads = 0;
  int64_t state_head_bytes = 0;
  std::vector<EntryPart> state_parts;  // of the state's layers, one each
};

// One step's rows, of any number of sequences, prompt chunks and generated tokens mixed.
struct ForwardBatch {
  std::span<const int32_t> tokens;     // [rows]
  std::span<const int32_t> positions;  // [rows]
  std::span<const kernels::SequenceSlice> slices;
  std::span<const int32_t> logit_rows;  // rows whose logits are wanted, ascending
  // Per layer of the whole model: where the residual stream after it is wanted, [rows, hidden] fp32; null where not.
  // Empty: nowhere. A stage fills those of its own layers: memory that the team shares, each rank its rows.
  std::span<float* const> taps;
  kernels::CacheView cache;
  // Called as layers go by, with how many of the cache's entries hold what these rows put there. Null: nobody listens.
  const std::function<void(int)>* on_entries = nullptr;
  void entries_ready(int count) const {
    if (on_entries != nullptr) (*on_entries)(count);
  }
  // What the stage before left, [stage_in_floats(rows)], and what the next one takes, [stage_out_floats(rows)]: memory
  // that the team shares, each rank writes its rows; all are there when forward returns. Null on the first and on the
  // last stage. Opaque: index choices that cross are integers.
  const float* stage_in = nullptr;
  float* stage_out = nullptr;
};

// The replicas of an expert-parallel group: what a rank's layer of experts asks them for, and does for them. Every
// replica calls the same operations in one order, once per layer of experts and step, also with no rows of its own.
class ReplicaExchange {
 public:
  virtual ~ReplicaExchange() = default;
  virtual int size() const = 0;
  virtual int rank() const = 0;
  // Sends to_each[p] to replica p; returns what each sent to this one, in the order of replicas. One thread.
  virtual Result<std::vector<std::vector<std::byte>>> exchange(std::vector<std::vector<std::byte>> to_each) = 0;
};

// A rank of a grid: where it stands and whom it works with. The default is a model on one rank.
struct RankSetup {
  parallel::RankPlace place;
  std::vector<int> layer_partition;     // of the stages; empty: even
  parallel::Group group;                // of the stage's team
  ReplicaExchange* replicas = nullptr;  // with dp > 1 and expert parallelism; used by rank 0 of the team
};

class Model {
 public:
  virtual ~Model() = default;
  virtual CacheNeeds cache_needs() const = 0;
  virtual int vocab_size() const = 0;
  // The longest context the weights were trained for.
  virtual int max_positions() const = 0;
  // Dtype the checkpoint computes in; what --kv-cache-dtype auto means.
  virtual tensor::DType native_cache_dtype() const = 0;
  // Of one step of `rows` rows: what comes from the stage before and goes to the next (the residual stream, with its
  // bank, and index choices that layers behind the border share). 0 at the ends of the pipeline.
  virtual int64_t stage_in_floats(int64_t /*rows*/) const { return 0; }
  virtual int64_t stage_out_floats(int64_t /*rows*/) const { return 0; }
  // Hex SHA-256 over config and weights' names, shapes, formats and sampled bytes: the identity in hand-shakes.
  virtual std::string fingerprint() const = 0;
  // Bytes of weights held.
  virtual int64_t weight_bytes() const = 0;
  // Allocates scratch for steps of up to max_rows rows and max_logit_rows wanted rows. Call once before forward; the
  // ranks of a team do so together, on their own threads, with the same numbers. A rank that gets an error must break
  // its team up: the others may wait for it (and throw parallel::GroupBroken).
  virtual Result<void> prepare(int max_rows, int max_logit_rows, int threads) = 0;
  // Writes the step's keys and values into the cache and, on the last stage, logits [logit_rows.size(), vocab_size]
  // fp32: memory that the team shares, each rank its columns; all are there when forward returns. The ranks of a team
  // call it together, with the same rows. Throws parallel::GroupBroken when one of them has gone.
  virtual void forward(const ForwardBatch& batch, float* logits, ComputePool& pool) = 0;
};

struct LoadOptions {
  tensor::Isa isa = tensor::Isa::kPortable;
  bool allow_onednn = true;
  // 0: from the checkpoint. Refused when larger than the checkpoint supports.
  int max_positions = 0;
  // "": as the checkpoint says. "ascend": it must be a folder that ModelSlim wrote.
  std::string quantization;
  RankSetup rank;
  // Called with bytes done and bytes in all, from the loading thread.
  std::function<void(int64_t done, int64_t total)> progress;
};

// Loads a GGUF file or a Hugging Face folder; the architecture picks the family (registry.cc).
Result<std::unique_ptr<Model>> load_model(const std::string& path, const LoadOptions& options, ComputePool& pool);

}  // namespace baton::models
