// The architectures there are. A family joins by one row of the table.
#include <algorithm>
#include <array>

#include "models/deepseek/deepseek_model.h"
#include "models/llama/llama_model.h"
#include "models/model.h"
#include "weights/checkpoint.h"

namespace baton::models {
namespace {

using weights::Checkpoint;

struct Architecture {
  std::string_view gguf;  // general.architecture; empty: none
  std::string_view hf;    // an entry of config.json's "architectures"
  Result<std::unique_ptr<Model>> (*load)(const Checkpoint&, const LoadOptions&, ComputePool&);
};

constexpr std::array<Architecture, 8> kArchitectures = {{
    {"llama", "LlamaForCausalLM", LlamaModel::load},
    {"", "MistralForCausalLM", LlamaModel::load},
    {"deepseek2", "DeepseekV3ForCausalLM", DeepseekModel::load},  // Kimi K2 too
    {"deepseek32", "DeepseekV32ForCausalLM", DeepseekModel::load},
    {"", "KimiK25ForConditionalGeneration", DeepseekModel::load},
    {"", "Kimi_K25ForConditionalGeneration", DeepseekModel::load},  // as transformers spells it
    {"kimi-linear", "KimiLinearForCausalLM", DeepseekModel::load},
    {"kimi-k3", "KimiK3ForConditionalGeneration", DeepseekModel::load},
}};

std::string supported(Checkpoint::Format format) {
  std::string list;
  for (const Architecture& architecture : kArchitectures) {
    const std::string_view name = format == Checkpoint::Format::kGguf ? architecture.gguf : architecture.hf;
    if (!name.empty()) list += fmt::format("{}{}", list.empty() ? "" : ", ", name);
  }
  return list;
}

Result<std::string> architecture_name(const Checkpoint& checkpoint) {
  const nlohmann::json& config = checkpoint.config();
  if (checkpoint.format() == Checkpoint::Format::kGguf) {
    const auto it = config.find("general.architecture");
    if (it != config.end() && it->is_string()) return it->get<std::string>();
    return fail(Code::kDataLoss, "{}: GGUF metadata has no general.architecture", checkpoint.path());
  }
  const auto it = config.find("architectures");
  if (it != config.end() && it->is_array() && !it->empty() && it->front().is_string()) {
    return it->front().get<std::string>();
  }
  return fail(Code::kDataLoss, "{}/config.json: \"architectures\" must be a list with the model's class",
              checkpoint.path());
}

}  // namespace

Result<std::unique_ptr<Model>> load_model(const std::string& path, const LoadOptions& options, ComputePool& pool) {
  BATON_TRY_ASSIGN(const auto checkpoint, weights::open_checkpoint(path));
  BATON_TRY_ASSIGN(const std::string name, architecture_name(*checkpoint));
  for (const Architecture& architecture : kArchitectures) {
    const bool gguf = checkpoint->format() == Checkpoint::Format::kGguf;
    if (name == (gguf ? architecture.gguf : architecture.hf)) return architecture.load(*checkpoint, options, pool);
  }
  return fail(Code::kUnimplemented, "{}: architecture \"{}\" is not supported; this version has {}", path, name,
              supported(checkpoint->format()));
}

}  // namespace baton::models
