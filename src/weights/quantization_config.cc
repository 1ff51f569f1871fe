#include "weights/quantization_config.h"

#include "weights/printable.h"

namespace baton::weights {
namespace {

using nlohmann::json;

const json& member(const json& object, std::string_view key) {
  static const json kNull;
  const auto it = object.find(key);
  return it == object.end() ? kNull : *it;
}

std::string text_of(const json& value) {
  return printable(value.is_string() ? value.get<std::string>()
                                     : value.dump(-1, ' ', true, json::error_handler_t::replace));
}

// In some checkpoints it stands beside text_config, in others within it.
const json& find_config(const json& config) {
  const json& outer = member(config, "quantization_config");
  if (!outer.is_null()) return outer;
  const json& text = member(config, "text_config");
  return text.is_object() ? member(text, "quantization_config") : outer;
}

Result<QuantMethod> read_fp8(const json& quantization, const std::string& where) {
  const json& block = member(quantization, "weight_block_size");
  if (block != json::array({128, 128})) {
    return fail(Code::kUnimplemented, "{}: quantization_config.weight_block_size is {}; [128, 128] is read", where,
                text_of(block));
  }
  const json& format = member(quantization, "fmt");
  if (!format.is_null() && format != "e4m3") {
    return fail(Code::kUnimplemented, "{}: quantization_config.fmt is {}; e4m3 is read", where, text_of(format));
  }
  return QuantMethod::kFp8Block;
}

Result<void> check_weights(const json& weights, std::string_view type, const std::string& where) {
  if (!weights.is_object()) return fail(Code::kDataLoss, "{}: quantization_config has a group without weights", where);
  const auto expect = [&](std::string_view key, const json& wanted) -> Result<void> {
    const json& found = member(weights, key);
    if (found.is_null() || found == wanted) return {};
    return fail(Code::kUnimplemented, "{}: quantization_config: weights.{} is {}; {} is read", where, key,
                text_of(found), text_of(wanted));
  };
  BATON_TRY(expect("num_bits", 4));
  BATON_TRY(expect("group_size", 32));
  BATON_TRY(expect("symmetric", true));
  BATON_TRY(expect("strategy", "group"));
  return expect("type", std::string(type));
}

// The format stands at the top or in each group; groups of several formats are not read.
Result<QuantMethod> read_compressed(const json& quantization, const std::string& where) {
  json format = member(quantization, "format");
  const json& groups = member(quantization, "config_groups");
  if (!groups.is_object() || groups.size() != 1) {
    return fail(Code::kUnimplemented, "{}: quantization_config.config_groups must be one group", where);
  }
  const json& group = groups.front();
  if (!group.is_object()) return fail(Code::kDataLoss, "{}: quantization_config.config_groups holds no group", where);
  const json& inner = member(group, "format");
  if (format.is_null()) format = inner;
  if (!inner.is_null() && inner != format) {
    return fail(Code::kDataLoss, "{}: quantization_config.format is {}, its group says {}", where, text_of(format),
                text_of(inner));
  }
  if (format == "pack-quantized") {
    BATON_TRY(check_weights(member(group, "weights"), "int", where));
    return QuantMethod::kPackedInt4;
  }
  if (format == "mxfp4-pack-quantized") {
    BATON_TRY(check_weights(member(group, "weights"), "float", where));
    return QuantMethod::kPackedMxfp4;
  }
  return fail(Code::kUnimplemented,
              "{}: quantization_config.format is {}; pack-quantized and mxfp4-pack-quantized are read", where,
              text_of(format));
}

}  // namespace

std::string_view quant_method_text(QuantMethod method) {
  switch (method) {
    case QuantMethod::kNone:
      return "nothing of quantisation";
    case QuantMethod::kFp8Block:
      return "fp8 in blocks of 128 x 128";
    case QuantMethod::kPackedInt4:
      return "int4 in groups of 32 (pack-quantized)";
    case QuantMethod::kPackedMxfp4:
      return "mxfp4-pack-quantized";
    case QuantMethod::kAscend:
      break;
  }
  return "ascend";
}

Result<QuantMethod> read_quantization_config(const json& config, const std::string& where) {
  const json& quantization = find_config(config);
  if (quantization.is_null()) return QuantMethod::kNone;
  if (!quantization.is_object()) return fail(Code::kDataLoss, "{}: quantization_config is not an object", where);
  const json& method = member(quantization, "quant_method");
  if (method == "fp8") return read_fp8(quantization, where);
  if (method == "compressed-tensors") return read_compressed(quantization, where);
  if (method == "ascend") return QuantMethod::kAscend;
  return fail(Code::kUnimplemented,
              "{}: quantization_config.quant_method is {}; fp8, compressed-tensors and ascend are read", where,
              text_of(method));
}

}  // namespace baton::weights
