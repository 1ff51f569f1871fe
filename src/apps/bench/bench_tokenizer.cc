#include "apps/bench/bench_tokenizer.h"

#include <filesystem>

#include "apps/args/resolve_model.h"
#include "apps/serve/model_files.h"
#include "weights/checkpoint.h"

namespace baton::apps {

Result<std::unique_ptr<text::Tokenizer>> load_bench_tokenizer(const std::string& name, const std::string& mode) {
  const auto path = resolve_model(name, process_environment);
  if (!path) {
    return fail(path.error().with_context(fmt::format(
        "the tokenizer of '{}' is needed to make prompts; --tokenizer names its folder or GGUF file", name)));
  }
  std::error_code error;
  if (std::filesystem::is_directory(*path, error)) {
    const auto kind = mode == "kimi_k3" ? text::TokenizerKind::kKimiTiktoken : text::TokenizerKind::kAny;
    if (auto tokenizer = text::load_tokenizer_folder(*path, kind)) return tokenizer;
  }
  BATON_TRY_ASSIGN(const auto checkpoint, weights::open_checkpoint(*path));
  BATON_TRY_ASSIGN(auto files, load_model_files(*checkpoint, "", mode.empty() ? "auto" : mode));
  return std::move(files.tokenizer);
}

}  // namespace baton::apps
