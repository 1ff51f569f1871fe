// Finds the tokenizer's files in a checkpoint folder.
#include <filesystem>
#include <fstream>
#include <system_error>

#include "text/tokenizer.h"
#include "text/tokenizer/hf_tokenizer.h"
#include "text/tokenizer/kimi_tokenizer.h"
#include "text/tokenizer/sentencepiece_tokenizer.h"

namespace baton::text {
namespace {

constexpr uintmax_t kFileBytesMax = 256u << 20;

Result<std::string> read_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return fail(Code::kNotFound, "{}: not a file", path.string());
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) return fail(Code::kNotFound, "{}: {}", path.string(), error.message());
  if (bytes > kFileBytesMax) {
    return fail(Code::kOutOfRange, "{}: {} bytes: at most {}", path.string(), bytes, kFileBytesMax);
  }
  std::string text(bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(bytes))) {
    return fail(Code::kDataLoss, "{}: can't be read", path.string());
  }
  return text;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_tokenizer_folder(const std::string& folder, TokenizerKind kind) {
  const std::filesystem::path root(folder);
  std::error_code error;
  std::string config;
  if (std::filesystem::exists(root / "tokenizer_config.json", error)) {
    BATON_TRY_ASSIGN(config, read_file(root / "tokenizer_config.json"));
  }
  Result<std::unique_ptr<Tokenizer>> made = fail(
      Code::kNotFound,
      "{}: neither tokenizer.json, tiktoken.model nor tokenizer.model: copy the checkpoint's tokenizer there", folder);
  const bool any = kind == TokenizerKind::kAny;
  if (any && std::filesystem::exists(root / "tokenizer.json", error)) {
    BATON_TRY_ASSIGN(const std::string json, read_file(root / "tokenizer.json"));
    made = make_hf_tokenizer(json, config);
  } else if (std::filesystem::exists(root / "tiktoken.model", error)) {
    BATON_TRY_ASSIGN(const std::string ranks, read_file(root / "tiktoken.model"));
    made = make_kimi_tokenizer(ranks, config);
  } else if (any && std::filesystem::exists(root / "tokenizer.model", error)) {
    BATON_TRY_ASSIGN(const std::string model, read_file(root / "tokenizer.model"));
    made = make_sentencepiece_tokenizer(model, config);
  } else {
    return any ? std::move(made)
               : fail(Code::kNotFound, "{}: no tiktoken.model, which this tokenizer mode needs", folder);
  }
  if (!made) return fail(made.error().with_context(folder));
  return made;
}

}  // namespace baton::text
