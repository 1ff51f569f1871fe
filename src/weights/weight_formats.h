// Which form each weight matrix of a checkpoint has, so that a model asks for a name and never knows the format.
//
// Forms (suffixes of the matrix's base name):
//   plain             .weight (floats; GGUF's block formats, MXFP4 too)
//   fp8 block         .weight e4m3, .weight_scale_inv f32 [out/128, in/128] rounded up
//   packed int4       .weight_packed i32 [out, in/8], .weight_scale bf16 [out, in/32], .weight_shape [2]
//   packed mxfp4      .weight_packed u8 [out, in/2], .weight_scale u8 [out, in/32]
//   ModelSlim         as quant_model_description.json says: FLOAT, W8A8, W8A8_DYNAMIC, W4A8_DYNAMIC, W4A8_MXFP,
//                     W8A8_MXFP8 (weight_formats_modelslim.cc)
// What config.json says must agree with what the tensors are. Errors name file and tensor.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"
#include "weights/checkpoint.h"
#include "weights/matrix_parts.h"
#include "weights/matrix_source.h"
#include "weights/quantization_config.h"

namespace baton::weights {

// Reads the checkpoint it was opened on, which must outlive it and what find() returns. Any thread.
class WeightFormats {
 public:
  // quantization: "" (what the checkpoint says), "ascend" (it must have a quant_model_description.json), or "fp8",
  // "compressed-tensors" and "gguf", which must be what the checkpoint says.
  static Result<WeightFormats> open(const Checkpoint& checkpoint, std::string_view quantization = "");

  // The matrix of this name ("....weight"). A GGUF or plain tensor of more than two dimensions counts its last as
  // columns and all others as rows. kDataLoss where a part is missing, misshaped, no number, or of another kind than
  // the configuration says; kUnimplemented for a form that isn't read. Values::kSkip looks at names, formats and shapes
  // alone: enough to check a checkpoint, not to read rows.
  Result<MatrixSource> find(const std::string& weight_name, Values values = Values::kRead) const;

 private:
  explicit WeightFormats(const Checkpoint& checkpoint) : checkpoint_(&checkpoint) {}

  Result<MatrixSource> plain(const MatrixParts& parts, const TensorEntry& weight) const;
  Result<MatrixSource> fp8_block(const MatrixParts& parts, const TensorEntry& weight) const;
  Result<MatrixSource> packed(const MatrixParts& parts, const TensorEntry& codes) const;
  Result<void> expect_method(QuantMethod found, const TensorEntry& tensor) const;

  // weight_formats_modelslim.cc
  Result<MatrixSource> modelslim(const MatrixParts& parts) const;
  Result<std::string> modelslim_type(const std::string& base) const;
  const std::string* described_type(const std::string& base) const;
  Result<void> check_fused(const std::string& base, const std::string& type) const;

  const Checkpoint* checkpoint_;
  QuantMethod method_ = QuantMethod::kNone;
  bool described_ = false;                    // there is a quant_model_description.json
  std::map<std::string, std::string> types_;  // of the description's tensors
  int64_t group_size_ = 0;                    // of the description: 0 is one scale a channel
  std::string version_;                       // of the description: "1.0.0" packs two int4 into a byte
};

inline constexpr const char* kDescriptionName = "quant_model_description.json";

}  // namespace baton::weights
