// The two layouts of a random checkpoint: a Hugging Face folder and a GGUF file.
#include <cmath>
#include <filesystem>
#include <numbers>

#include "weights/gguf_writer.h"
#include "weights/output_file.h"
#include "weights/quantise.h"
#include "weights/random_checkpoint.h"
#include "weights/safetensors_writer.h"
#include "weights/small_tokenizer.h"

namespace baton::weights {
namespace {

using nlohmann::ordered_json;
using tensor::DType;

constexpr double kRmsEpsilon = 1e-5;

// ---- Hugging Face ----

const char* torch_dtype(DType dtype) {
  if (dtype == DType::kF32) return "float32";
  return dtype == DType::kF16 ? "float16" : "bfloat16";
}

ordered_json config_json(const RandomLlamaOptions& o) {
  ordered_json config = {{"architectures", {"LlamaForCausalLM"}},
                         {"attention_bias", o.attention_bias},
                         {"attention_dropout", 0.0},
                         {"bos_token_id", SmallTokenizer::kBosId},
                         {"eos_token_id", SmallTokenizer::kEosId},
                         {"head_dim", o.head_dim},
                         {"hidden_act", "silu"},
                         {"hidden_size", o.hidden},
                         {"intermediate_size", o.intermediate},
                         {"max_position_embeddings", o.max_positions},
                         {"mlp_bias", false},
                         {"model_type", "llama"},
                         {"num_attention_heads", o.heads},
                         {"num_hidden_layers", o.layers},
                         {"num_key_value_heads", o.kv_heads},
                         {"rms_norm_eps", kRmsEpsilon},
                         {"rope_scaling", nullptr},
                         {"rope_theta", o.rope_theta},
                         {"tie_word_embeddings", o.tied},
                         {"torch_dtype", torch_dtype(o.dtype)},
                         {"vocab_size", o.vocab}};
  if (o.rope_scaling) {
    config["rope_scaling"] = {{"factor", o.rope_scaling->factor},
                              {"high_freq_factor", o.rope_scaling->high_freq_factor},
                              {"low_freq_factor", o.rope_scaling->low_freq_factor},
                              {"original_max_position_embeddings", o.rope_scaling->original_max_positions},
                              {"rope_type", "llama3"}};
  }
  return config;
}

Result<void> write_json(const std::string& folder, const char* name, const ordered_json& value) {
  return write_text_file((std::filesystem::path(folder) / name).string(), value.dump(2) + "\n");
}

// ---- GGUF ----

// Rows of a head as llama.cpp's converter orders them: Hugging Face rotates row i with row i + head_dim / 2, llama.cpp
// row 2 i with row 2 i + 1.
std::vector<float> permuted(const RandomTensor& tensor) {
  const int64_t row = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
  const int64_t head_dim = tensor.shape[0] / tensor.gguf_permuted_heads;
  std::vector<float> out(tensor.values.size());
  for (int64_t to = 0; to < tensor.shape[0]; ++to) {
    const int64_t within = to % head_dim;
    const int64_t from = to - within + within / 2 + within % 2 * (head_dim / 2);
    std::copy_n(tensor.values.begin() + from * row, row, out.begin() + to * row);
  }
  return out;
}

// What each rotary frequency is divided by: transformers' modeling_rope_utils, _compute_llama3_parameters.
std::vector<float> rope_factors(const RandomLlamaOptions& o, const Llama3RopeScaling& scaling) {
  std::vector<float> factors;
  const double original = scaling.original_max_positions;
  for (int i = 0; i < o.head_dim / 2; ++i) {
    const double wavelength = 2 * std::numbers::pi * std::pow(o.rope_theta, 2.0 * i / o.head_dim);
    const double smooth =
        (original / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
    double factor = 1 / ((1 - smooth) / scaling.factor + smooth);
    if (wavelength < original / scaling.high_freq_factor) factor = 1;
    if (wavelength > original / scaling.low_freq_factor) factor = scaling.factor;
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

// llama.h, enum llama_ftype.
uint32_t file_type(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ8_0:
      return 7;
    case DType::kQ5_0:
      return 8;
    case DType::kQ5_1:
      return 9;
    case DType::kQ4_K:
      return 14;
    case DType::kQ5_K:
      return 16;
    case DType::kQ6_K:
      return 18;
    case DType::kBF16:
      return 32;
    default:
      return 0;
  }
}

void set_metadata(const RandomLlamaOptions& o, GgufWriter& writer) {
  const auto set = [&](const char* key, int value) { writer.set(key, static_cast<uint32_t>(value)); };
  writer.set("general.architecture", "llama");
  writer.set("general.name", fmt::format("random-llama-{}", o.seed));
  writer.set("general.file_type", file_type(o.dtype));
  writer.set("general.quantization_version", uint32_t{2});
  set("llama.block_count", o.layers);
  set("llama.context_length", o.max_positions);
  set("llama.embedding_length", o.hidden);
  set("llama.feed_forward_length", o.intermediate);
  set("llama.attention.head_count", o.heads);
  set("llama.attention.head_count_kv", o.kv_heads);
  set("llama.attention.key_length", o.head_dim);
  set("llama.attention.value_length", o.head_dim);
  set("llama.rope.dimension_count", o.head_dim);
  set("llama.vocab_size", o.vocab);
  writer.set("llama.rope.freq_base", static_cast<float>(o.rope_theta));
  writer.set("llama.attention.layer_norm_rms_epsilon", static_cast<float>(kRmsEpsilon));
}

DType gguf_dtype(const RandomLlamaOptions& o, const RandomTensor& tensor) {
  if (tensor.shape.size() == 1) return DType::kF32;
  return tensor.gguf_name == "token_embd.weight" ? o.embedding_dtype.value_or(o.dtype) : o.dtype;
}


}  // namespace

Result<void> write_random_huggingface(const std::string& folder, const RandomLlamaOptions& options) {
  if (options.dtype != DType::kF32 && options.dtype != DType::kF16 && options.dtype != DType::kBF16) {
    return fail(Code::kInvalidArgument, "a Hugging Face folder holds f32, f16 or bf16 weights, not {}",
                tensor::dtype_name(options.dtype));
  }
  BATON_TRY_ASSIGN(const auto tensors, make_random_tensors(options));
  BATON_TRY_ASSIGN(const auto tokenizer, make_small_tokenizer(options.vocab));
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return fail(Code::kNotFound, "can't create folder {}: {}", folder, error.message());

  std::vector<std::vector<std::byte>> data;
  std::vector<TensorSource> sources;
  for (const auto& tensor : tensors) {
    data.push_back(quantise(options.dtype, tensor.values, tensor.shape.back()));
    sources.push_back({tensor.huggingface_name, options.dtype, tensor.shape, data.back()});
  }
  const auto weights = (std::filesystem::path(folder) / "model.safetensors").string();
  BATON_TRY(write_safetensors(weights, sources, {{"format", "pt"}}));
  BATON_TRY(write_json(folder, "config.json", config_json(options)));
  BATON_TRY(write_json(folder, "generation_config.json",
                       {{"bos_token_id", SmallTokenizer::kBosId}, {"eos_token_id", SmallTokenizer::kEosId}}));
  BATON_TRY(write_json(folder, "tokenizer.json", tokenizer_json(tokenizer)));
  return write_json(folder, "tokenizer_config.json", tokenizer_config_json(tokenizer));
}

Result<void> write_random_gguf(const std::string& path, const RandomLlamaOptions& options) {
  BATON_TRY_ASSIGN(auto tensors, make_random_tensors(options));
  BATON_TRY_ASSIGN(const auto tokenizer, make_small_tokenizer(options.vocab));
  GgufWriter writer;
  set_metadata(options, writer);
  set_tokenizer_metadata(tokenizer, writer);
  if (options.rope_scaling) {
    auto factors = rope_factors(options, *options.rope_scaling);
    const auto count = static_cast<int64_t>(factors.size());
    tensors.push_back({"", "rope_freqs.weight", {count}, std::move(factors)});
  }
  std::vector<std::vector<std::byte>> data;
  data.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    const DType dtype = gguf_dtype(options, tensor);
    if (!tensor::is_gguf_weight(dtype) || tensor.shape.back() % tensor::dtype_info(dtype).block_elements != 0) {
      return fail(Code::kInvalidArgument, "{} has rows of {}, which {} can't hold (blocks of {})", tensor.gguf_name,
                  tensor.shape.back(), tensor::dtype_name(dtype), tensor::dtype_info(dtype).block_elements);
    }
    const auto& values = tensor.gguf_permuted_heads > 0 ? permuted(tensor) : tensor.values;
    data.push_back(quantise(dtype, values, tensor.shape.back()));
    writer.add_tensor({tensor.gguf_name, dtype, tensor.shape, data.back()});
  }
  return writer.write(path);
}

}  // namespace baton::weights
