// `baton make-checkpoint`: a random checkpoint of any family at any size, in its published layout, that can be served.
//
// One value is a function of (seed, tensor name, element index): the same on every machine, whatever the shards and
// threads. Never holds more than a megabyte a thread; bound by the disk or by about 3 ns an element and core.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/compute_pool.h"
#include "base/status.h"
#include "tensor/dtype.h"
#include "weights/make_checkpoint/checkpoint_sizes.h"

namespace baton::weights {

struct MakeCheckpointOptions {
  CheckpointArch arch = CheckpointArch::kKimiK3;
  CheckpointSizes sizes;
  tensor::DType dtype = tensor::DType::kBF16;  // or F16 or F32
  uint64_t seed = 1;
  int64_t shard_bytes = int64_t{5} << 30;
  std::function<void(int64_t done, int64_t total)> progress;  // bytes; called on the caller's thread
};

struct MadeCheckpoint {
  int64_t tensors = 0;
  int64_t bytes = 0;
  int files = 0;
};

// Writes safetensors files (with an index where there are several), generation_config.json, tokenizer.json,
// tokenizer_config.json and, last, config.json. The folder is made if it is not there; kAlreadyExists if it holds a
// model. kInvalidArgument names the size that can't be.
Result<MadeCheckpoint> make_checkpoint(const std::string& folder, const MakeCheckpointOptions& options,
                                       ComputePool& pool);

}  // namespace baton::weights
