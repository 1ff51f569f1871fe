// A configuration of any checkpoint: a model whose numbers fit together, or an error. The first byte says for whom the
// rest, JSON, is: config.json or GGUF metadata, Llama's or DeepSeek's family.
#include <cstdlib>

#include "models/deepseek/deepseek_config.h"
#include "models/llama/llama_config.h"
#include "weights/checkpoint.h"

namespace {

using namespace baton;

class ConfigOnly final : public weights::Checkpoint {
 public:
  ConfigOnly(Format format, nlohmann::json config) : format_(format), config_(std::move(config)) {}
  Format format() const override { return format_; }
  const std::string& path() const override { return path_; }
  const std::map<std::string, weights::TensorEntry>& tensors() const override { return tensors_; }
  const nlohmann::json& config() const override { return config_; }
  const nlohmann::json& generation_config() const override { return empty_; }
  const nlohmann::json& tokenizer_config() const override { return empty_; }
  const std::string& file_path(const weights::TensorEntry&) const override { return path_; }
  void release(const weights::TensorEntry&) const override {}

 private:
  Format format_;
  std::string path_ = "model";
  std::map<std::string, weights::TensorEntry> tensors_;
  nlohmann::json config_, empty_ = nlohmann::json::object();
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  auto config = nlohmann::json::parse(data + 1, data + size, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return 0;
  const auto format =
      (data[0] & 1) != 0 ? weights::Checkpoint::Format::kGguf : weights::Checkpoint::Format::kHuggingFace;
  const ConfigOnly checkpoint(format, std::move(config));
  if ((data[0] & 2) != 0) {
    if (const auto read = models::read_llama_config(checkpoint); read && read->canonical_text().empty()) std::abort();
  } else {
    if (const auto read = models::read_deepseek_config(checkpoint); read && read->canonical_text().empty())
      std::abort();
  }
  return 0;
}
