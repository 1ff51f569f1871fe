// What config.json says of the weights: "quantization_config", at the top or in text_config.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace baton::weights {

enum class QuantMethod : uint8_t {
  kNone,
  kFp8Block,     // "fp8", weight_block_size [128, 128]
  kPackedInt4,   // "compressed-tensors", pack-quantized
  kPackedMxfp4,  // "compressed-tensors", mxfp4-pack-quantized
  kAscend,       // "ascend": quant_model_description.json has the say
};
std::string_view quant_method_text(QuantMethod method);  // "fp8 in blocks of 128 x 128"

// kUnimplemented names the key whose value this version can't serve. `where` opens the messages: ".../config.json".
Result<QuantMethod> read_quantization_config(const nlohmann::json& config, const std::string& where);

}  // namespace baton::weights
