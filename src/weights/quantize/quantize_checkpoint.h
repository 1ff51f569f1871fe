// `baton quantize`: a checkpoint of floats becomes one of a published quantised form, shard by shard.
//
// Resumable: every shard is written under another name, made durable and renamed; a file in the folder tells which
// input, scheme and shards these are. A later call with the same words skips the shards that stand and goes on. Holds a
// few megabytes a thread. Bound by memory and disk: about 5 ns an element and core.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/compute_pool.h"
#include "base/status.h"
#include "weights/quantize/quant_scheme.h"

namespace baton::weights {

struct QuantizeOptions {
  QuantScheme scheme = QuantScheme::kFp8Block;
  int64_t shard_bytes = int64_t{5} << 30;
  // w8a8: of each static matrix by its base name ("model.layers.0.self_attn.q_a_proj"). Where this is empty all of them
  // take input_range / 127 and offset 0: inputs beyond the range are cut. Inputs of attention are RMS-normed, so few
  // lie beyond 8.
  std::map<std::string, InputQuant> inputs;
  float input_range = 8;
  std::function<void(int64_t done, int64_t total)> progress;  // bytes written; on the caller's thread
};

struct QuantizeReport {
  int64_t quantised = 0;  // matrices
  int64_t kept = 0;       // other tensors
  int64_t unfit = 0;      // of these: matrices that the form can't hold
  std::string unfit_example;
  int64_t bytes = 0;
  int files = 0;
  int files_resumed = 0;  // stood already
};

// Writes to `out`, which is made; kAlreadyExists if it holds a model or the beginnings of another one.
// kInvalidArgument for an input that is quantised already or no folder; kDataLoss names the tensor with a value that is
// no number.
Result<QuantizeReport> quantize_checkpoint(const std::string& in, const std::string& out,
                                           const QuantizeOptions& options, ComputePool& pool);

// {"base name": {"scale": 0.04, "offset": -3}, "other": 0.05}: what --input-scale-from names.
Result<std::map<std::string, InputQuant>> read_input_scales(const std::string& path);

}  // namespace baton::weights
