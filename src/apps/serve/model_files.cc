#include "apps/serve/model_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/log.h"

namespace baton::apps {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

Result<std::string> read_text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  if (fs::is_directory(path, error)) return fail(Code::kInvalidArgument, "{} is a folder, not a file", path);
  if (!file) return fail(Code::kNotFound, "can't open {}", path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

template <typename T>
std::vector<T> array_of(const json& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end() || !it->is_array()) return {};
  std::vector<T> values;
  values.reserve(it->size());
  for (const auto& entry : *it) {
    if constexpr (std::is_same_v<T, std::string>) {
      values.push_back(entry.is_string() ? entry.get<std::string>() : std::string());
    } else {
      const bool fits = std::is_floating_point_v<T> ? entry.is_number() : entry.is_number_integer();
      values.push_back(fits ? entry.get<T>() : T{});
    }
  }
  return values;
}

std::string string_of(const json& config, const char* key) {
  const auto it = config.find(key);
  return it != config.end() && it->is_string() ? it->get<std::string>() : std::string();
}

std::optional<TokenId> token_of(const json& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end() || !it->is_number_integer()) return std::nullopt;
  const auto value = it->get<int64_t>();
  return value >= 0 && value <= INT32_MAX ? std::optional(static_cast<TokenId>(value)) : std::nullopt;
}

std::optional<bool> bool_of(const json& config, const char* key) {
  const auto it = config.find(key);
  return it != config.end() && it->is_boolean() ? std::optional(it->get<bool>()) : std::nullopt;
}

text::GgufTokenizerData gguf_tokenizer_data(const json& metadata) {
  text::GgufTokenizerData data;
  data.model = string_of(metadata, "tokenizer.ggml.model");
  data.pre = string_of(metadata, "tokenizer.ggml.pre");
  data.tokens = array_of<std::string>(metadata, "tokenizer.ggml.tokens");
  data.scores = array_of<float>(metadata, "tokenizer.ggml.scores");
  data.token_types = array_of<int32_t>(metadata, "tokenizer.ggml.token_type");
  data.merges = array_of<std::string>(metadata, "tokenizer.ggml.merges");
  data.bos_id = token_of(metadata, "tokenizer.ggml.bos_token_id");
  data.eos_id = token_of(metadata, "tokenizer.ggml.eos_token_id");
  data.eot_id = token_of(metadata, "tokenizer.ggml.eot_token_id");
  data.unk_id = token_of(metadata, "tokenizer.ggml.unknown_token_id");
  data.add_bos = bool_of(metadata, "tokenizer.ggml.add_bos_token");
  data.add_eos = bool_of(metadata, "tokenizer.ggml.add_eos_token");
  data.add_space_prefix = bool_of(metadata, "tokenizer.ggml.add_space_prefix");
  data.chat_template = string_of(metadata, "tokenizer.chat_template");
  return data;
}

// The template a folder carries: chat_template.jinja, else tokenizer_config.json's (a string, or a list of named ones
// of which "default" counts).
Result<std::string> folder_template(const weights::Checkpoint& checkpoint) {
  const fs::path file = fs::path(checkpoint.path()) / "chat_template.jinja";
  std::error_code error;
  if (fs::is_regular_file(file, error)) return read_text_file(file.string());
  if (fs::exists(file, error)) return fail(Code::kInvalidArgument, "{} is not a regular file", file.string());
  const json& config = checkpoint.tokenizer_config();
  const auto it = config.find("chat_template");
  if (it == config.end()) return std::string();
  if (it->is_string()) return it->get<std::string>();
  if (it->is_array()) {
    for (const auto& named : *it) {
      if (named.is_object() && string_of(named, "name") == "default") return string_of(named, "template");
    }
  }
  return std::string();
}

std::string native_format(const weights::Checkpoint& checkpoint, const std::string& tokenizer_mode, bool has_template,
                          const text::Tokenizer& tokenizer) {
  const fs::path path = fs::path(checkpoint.path()).lexically_normal();
  return text::native_chat_format_name({.model_type = string_of(checkpoint.config(), "model_type"),
                                        .tokenizer_mode = tokenizer_mode,
                                        .model_name = (path.has_filename() ? path : path.parent_path()).filename(),
                                        .has_template = has_template},
                                       tokenizer);
}

// Without it an answer would never end, so what can't be read is an error.
Result<void> add_eos(std::vector<TokenId>& ids, const json& config, std::string_view file) {
  const auto it = config.find("eos_token_id");
  if (it == config.end() || it->is_null()) return {};
  for (const auto& entry : it->is_array() ? *it : json::array({*it})) {
    if (!entry.is_number_integer() || entry < 0 || entry > INT32_MAX) {
      return fail(Code::kInvalidArgument, "{}: eos_token_id holds {}; a token id or a list of them is needed", file,
                  entry.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 80));
    }
    ids.push_back(entry.get<TokenId>());
  }
  return {};
}

}  // namespace

Result<ModelFiles> load_model_files(const weights::Checkpoint& checkpoint, const std::string& chat_template_file,
                                    const std::string& tokenizer_mode) {
  ModelFiles files;
  std::string source;
  if (checkpoint.format() == weights::Checkpoint::Format::kGguf) {
    const auto data = gguf_tokenizer_data(checkpoint.config());
    BATON_TRY_ASSIGN(files.tokenizer, text::make_gguf_tokenizer(data));
    source = data.chat_template;
  } else {
    const auto kind = tokenizer_mode == "kimi_k3" ? text::TokenizerKind::kKimiTiktoken : text::TokenizerKind::kAny;
    BATON_TRY_ASSIGN(files.tokenizer, text::load_tokenizer_folder(checkpoint.path(), kind));
    BATON_TRY_ASSIGN(source, folder_template(checkpoint));
    files.generation_config = checkpoint.generation_config();
    BATON_TRY(
        add_eos(files.eos_token_ids, checkpoint.generation_config(), checkpoint.path() + "/generation_config.json"));
    BATON_TRY(add_eos(files.eos_token_ids, checkpoint.config(), checkpoint.path() + "/config.json"));
  }
  for (const TokenId id : files.tokenizer->eos_ids()) files.eos_token_ids.push_back(id);
  std::sort(files.eos_token_ids.begin(), files.eos_token_ids.end());
  files.eos_token_ids.erase(std::unique(files.eos_token_ids.begin(), files.eos_token_ids.end()),
                            files.eos_token_ids.end());

  if (!chat_template_file.empty()) {
    BATON_TRY_ASSIGN(source, read_text_file(chat_template_file));
  } else if (const std::string native = native_format(checkpoint, tokenizer_mode, !source.empty(), *files.tokenizer);
             !native.empty()) {
    BATON_TRY_ASSIGN(files.chat_format, text::make_native_chat_format(native));
    return files;
  }
  if (source.empty()) return files;
  auto parsed = text::make_jinja_chat_format(source);
  if (parsed) {
    files.chat_format = std::move(*parsed);
  } else if (!chat_template_file.empty()) {
    return fail(parsed.error().with_context(chat_template_file));
  } else {
    // Completions still work; the chat route says that there is no template.
    log_warning("chat_template=unusable reason=\"{}\"", parsed.error().message());
  }
  return files;
}

}  // namespace baton::apps
