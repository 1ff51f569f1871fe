#include "weights/quantize/quant_scheme.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>

namespace baton::weights {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 8> kNames{"fp8-block",    "int4-group32", "mxfp4",     "w8a8",
                                                 "w8a8-dynamic", "w4a8-dynamic", "w4a8-mxfp", "w8a8-mxfp8"};

enum class Role : uint8_t { kOther, kAttention, kAttentionOutput, kKvUp, kIndexer, kMlp, kRoutedExpert };

bool one_of(std::string_view text, std::initializer_list<std::string_view> texts) {
  return std::ranges::find(texts, text) != texts.end();
}

Role role_of(std::string_view name) {
  constexpr std::string_view kWeight = ".weight";
  if (!name.ends_with(kWeight) || name.find("layers.") == std::string_view::npos) return Role::kOther;
  if (name.starts_with("vision_tower") || name.starts_with("mm_projector")) return Role::kOther;
  name.remove_suffix(kWeight.size());
  const std::string_view leaf = name.substr(name.rfind('.') + 1);
  if (name.find(".self_attn.indexer.") != std::string_view::npos) {
    return leaf == "wq_b" ? Role::kIndexer : Role::kOther;
  }
  if (name.find(".self_attn.") != std::string_view::npos) {
    if (one_of(leaf, {"q_proj", "k_proj", "v_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa"})) {
      return Role::kAttention;
    }
    if (one_of(leaf, {"o_proj", "g_proj"})) return Role::kAttentionOutput;
    return leaf == "kv_b_proj" ? Role::kKvUp : Role::kOther;
  }
  if (name.find(".experts.") != std::string_view::npos) return Role::kRoutedExpert;
  return one_of(leaf, {"gate_proj", "up_proj", "down_proj", "routed_expert_down_proj", "routed_expert_up_proj"})
             ? Role::kMlp
             : Role::kOther;
}

// The number after "layers.", or -1.
int layer_of(std::string_view name) {
  const size_t at = name.find("layers.");
  if (at == std::string_view::npos) return -1;
  int layer = -1;
  std::from_chars(name.data() + at + 7, name.data() + name.size(), layer);
  return layer;
}

MatrixForm packed_experts(MatrixForm form, const ModelTraits& traits, Role role) {
  const bool wanted = traits.routed_experts ? role == Role::kRoutedExpert : role != Role::kOther;
  return wanted ? form : MatrixForm::kKeep;
}

MatrixForm modelslim_form(QuantScheme scheme, const ModelTraits& traits, Role role) {
  if (role == Role::kOther || role == Role::kKvUp) return MatrixForm::kKeep;
  if (role == Role::kAttentionOutput && traits.kda) return MatrixForm::kKeep;
  const bool attention = role == Role::kAttention || role == Role::kAttentionOutput;
  const bool expert = role == Role::kRoutedExpert || (!traits.routed_experts && role == Role::kMlp);
  switch (scheme) {
    case QuantScheme::kW8A8:
      return attention ? MatrixForm::kW8A8 : MatrixForm::kW8A8Dynamic;
    case QuantScheme::kW4A8Dynamic:
      return expert ? MatrixForm::kW4A8Dynamic : MatrixForm::kW8A8Dynamic;
    case QuantScheme::kW4A8Mxfp:
      return expert ? MatrixForm::kW4A8Mxfp : MatrixForm::kW8A8Mxfp8;
    case QuantScheme::kW8A8Mxfp8:
      return MatrixForm::kW8A8Mxfp8;
    default:
      return MatrixForm::kW8A8Dynamic;
  }
}

const json& text_config(const json& config) {
  const auto it = config.find("text_config");
  return it != config.end() && it->is_object() ? *it : config;
}

json compressed_tensors_config(std::string_view format, std::string_view type, const ModelTraits& traits) {
  const json weights = {{"num_bits", 4},       {"type", type},         {"symmetric", true},
                        {"group_size", 32},    {"strategy", "group"},  {"dynamic", false},
                        {"actorder", nullptr}, {"observer", "minmax"}, {"block_structure", nullptr}};
  json ignored = {"lm_head"};
  if (traits.routed_experts) {
    for (const char* pattern :
         {"re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
          "re:.*routed_expert_(down|up)_proj.*", "re:.*_res_proj.*", "re:vision_tower.*", "re:mm_projector.*"}) {
      ignored.push_back(pattern);
    }
  }
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"quantization_status", "compressed"},
          {"kv_cache_scheme", nullptr},
          {"global_compression_ratio", nullptr},
          {"ignore", std::move(ignored)},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights", weights},
              {"input_activations", nullptr},
              {"output_activations", nullptr}}}}}};
}

}  // namespace

std::string_view quant_scheme_name(QuantScheme scheme) { return kNames[static_cast<size_t>(scheme)]; }

std::optional<QuantScheme> parse_quant_scheme(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<QuantScheme>(i);
  }
  return std::nullopt;
}

std::string quant_scheme_list() {
  std::string list;
  for (const auto name : kNames) list += fmt::format("{}{}", list.empty() ? "" : ", ", name);
  return list;
}

bool is_modelslim(QuantScheme scheme) { return scheme >= QuantScheme::kW8A8; }

Result<ModelTraits> read_model_traits(const Checkpoint& checkpoint) {
  const json& config = text_config(checkpoint.config());
  const auto layers = config.find("num_hidden_layers");
  if (layers == config.end() || !layers->is_number_integer()) {
    return fail(Code::kDataLoss, "{}/config.json: num_hidden_layers must be a number", checkpoint.path());
  }
  ModelTraits traits{.layers = static_cast<int>(std::clamp<int64_t>(layers->get<int64_t>(), 0, 1 << 20))};
  traits.kda = config.contains("linear_attn_config");
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (role_of(name) == Role::kRoutedExpert) traits.routed_experts = true;
  }
  return traits;
}

MatrixForm form_of(QuantScheme scheme, const ModelTraits& traits, const TensorEntry& tensor) {
  if (tensor.shape.size() != 2 || tensor.bytes == 0) return MatrixForm::kKeep;
  const Role role = role_of(tensor.name);
  if (role == Role::kOther) return MatrixForm::kKeep;
  switch (scheme) {
    case QuantScheme::kFp8Block:
      return MatrixForm::kFp8Block;
    case QuantScheme::kInt4Group32:
      return packed_experts(MatrixForm::kInt4Group32, traits, role);
    case QuantScheme::kMxfp4:
      return packed_experts(MatrixForm::kMxfp4Packed, traits, role);
    default:
      break;
  }
  return layer_of(tensor.name) >= traits.layers ? MatrixForm::kKeep : modelslim_form(scheme, traits, role);
}

bool splits_input(std::string_view tensor_name) {
  return tensor_name.ends_with(".down_proj.weight") || tensor_name.ends_with(".w2.weight");
}

json quantised_config(QuantScheme scheme, const ModelTraits& traits, const json& config) {
  json out = config;
  json& place = out.contains("text_config") && out["text_config"].is_object() ? out["text_config"] : out;
  switch (scheme) {
    case QuantScheme::kFp8Block:
      place["quantization_config"] = {{"activation_scheme", "dynamic"},
                                      {"fmt", "e4m3"},
                                      {"quant_method", "fp8"},
                                      {"weight_block_size", {128, 128}}};
      break;
    case QuantScheme::kInt4Group32:
      place["quantization_config"] = compressed_tensors_config("pack-quantized", "int", traits);
      break;
    case QuantScheme::kMxfp4:
      place["quantization_config"] = compressed_tensors_config("mxfp4-pack-quantized", "float", traits);
      break;
    default:
      break;
  }
  return out;
}

}  // namespace baton::weights
