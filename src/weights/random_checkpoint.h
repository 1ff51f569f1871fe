// A small Llama checkpoint with random weights, the same on every machine: for tests, benches and demos without a
// download. One set of options and one seed give one function, whichever layout it is written in.
//
// A weight is a function of (seed, tensor name, element index) alone: no generator state, no libm. Scales keep logits
// apart (a deviation of about 2.5) and attention neither flat nor one-hot.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"

namespace baton::weights {

// "rope_type": "llama3" of Hugging Face configurations.
struct Llama3RopeScaling {
  double factor = 8;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int original_max_positions = 256;
};

struct RandomLlamaOptions {
  int layers = 2;
  int hidden = 64;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 16;
  int intermediate = 160;
  int vocab = 320;  // at least SmallTokenizer::kVocabMin
  int max_positions = 4096;
  double rope_theta = 10000;
  std::optional<Llama3RopeScaling> rope_scaling;
  bool tied = true;
  bool attention_bias = false;  // on q, k, v and o, as in transformers
  uint64_t seed = 1;
  // Of the matrices. Norms and biases follow it where it is F32, F16 or BF16 in a Hugging Face folder; else they are
  // F32.
  tensor::DType dtype = tensor::DType::kF32;
  // GGUF only: of the embedding (and with it a tied head), where it differs.
  std::optional<tensor::DType> embedding_dtype;
};

// One tensor before it takes a file's format. GGUF's q and k hold the same rows in the order of llama.cpp's converter.
struct RandomTensor {
  std::string huggingface_name;
  std::string gguf_name;
  std::vector<int64_t> shape;   // [out, in], or [n]
  std::vector<float> values;    // in Hugging Face's order
  int gguf_permuted_heads = 0;  // > 0: q or k of that many heads
};
// In the order in which they are written. kInvalidArgument names the option that can't be.
Result<std::vector<RandomTensor>> make_random_tensors(const RandomLlamaOptions& options);

// config.json, generation_config.json, model.safetensors, tokenizer.json, tokenizer_config.json. dtype F32, F16 or
// BF16. The folder is made if it is not there; files of those names are replaced.
Result<void> write_random_huggingface(const std::string& folder, const RandomLlamaOptions& options);
// One .gguf file with its tokenizer. dtype: any weight format whose block divides hidden, heads * head_dim and
// intermediate.
Result<void> write_random_gguf(const std::string& path, const RandomLlamaOptions& options);

}  // namespace baton::weights
