// Which matrices of a model a scheme quantises, and to which form: as the published checkpoints of each kind do.
//
//   fp8-block       attention, MLPs and experts (DeepSeek); embedding, head, norms, router, MTP's projection stay
//   int4-group32    routed experts alone (Kimi K2.5)
//   mxfp4           routed experts alone (Kimi K3)
//   w8a8            attention static, MLPs and experts dynamic (ModelSlim's DeepSeek R1)
//   w8a8-dynamic    all of them dynamic
//   w4a8-dynamic    routed experts W4A8_DYNAMIC, the others W8A8_DYNAMIC
//   w4a8-mxfp       routed experts W4A8_MXFP, the others W8A8_MXFP8
//   w8a8-mxfp8      all of them
// In ModelSlim's schemes kv_b_proj and MTP layers stay FLOAT, in models with KDA layers g_proj and o_proj too. A model
// without routed experts takes its MLPs in their place (int4-group32 and mxfp4: attention as well).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "weights/checkpoint.h"
#include "weights/quantize/matrix_form.h"

namespace baton::weights {

enum class QuantScheme : uint8_t {
  kFp8Block,
  kInt4Group32,
  kMxfp4,
  kW8A8,
  kW8A8Dynamic,
  kW4A8Dynamic,
  kW4A8Mxfp,
  kW8A8Mxfp8,
};
std::string_view quant_scheme_name(QuantScheme scheme);  // "fp8-block"
std::optional<QuantScheme> parse_quant_scheme(std::string_view name);
std::string quant_scheme_list();
bool is_modelslim(QuantScheme scheme);

// What the rules need to know of a model.
struct ModelTraits {
  bool routed_experts = false;
  bool kda = false;
  int layers = 0;  // num_hidden_layers; later ones are MTP layers
};
// kDataLoss if config.json doesn't say how many layers there are.
Result<ModelTraits> read_model_traits(const Checkpoint& checkpoint);

// The form for a tensor; kKeep for everything that isn't a matrix of the scheme.
MatrixForm form_of(QuantScheme scheme, const ModelTraits& traits, const TensorEntry& tensor);
// Whether ranks may split the inputs of this matrix: down_proj and w2.
bool splits_input(std::string_view tensor_name);

// config.json with its quantization_config (fp8-block, int4-group32, mxfp4), or as it is.
nlohmann::json quantised_config(QuantScheme scheme, const ModelTraits& traits, const nlohmann::json& config);

}  // namespace baton::weights
