#include "weights/small_tokenizer.h"

#include <array>
#include <string_view>

namespace baton::weights {
namespace {

using nlohmann::ordered_json;

// Left and right part by rank; "_" is the space at the start of a word. A part is a byte or an earlier row's whole.
constexpr std::array<std::array<std::string_view, 2>, 44> kMerges{{
    {"_", "t"},  {"h", "e"},    {"i", "n"}, {"_", "a"}, {"r", "e"},  {"o", "n"},  {"_t", "he"}, {"e", "r"},
    {"_", "s"},  {"a", "t"},    {"_", "w"}, {"_", "o"}, {"e", "n"},  {"_", "c"},  {"i", "t"},   {"i", "s"},
    {"a", "n"},  {"o", "r"},    {"e", "s"}, {"_", "b"}, {"e", "d"},  {"_", "f"},  {"in", "g"},  {"_", "p"},
    {"o", "u"},  {"_a", "n"},   {"a", "l"}, {"a", "r"}, {"_", "m"},  {"_o", "f"}, {"_", "in"},  {"_", "d"},
    {"_", "h"},  {"_an", "d"},  {"i", "c"}, {"l", "e"}, {"_t", "o"}, {"r", "o"},  {"i", "on"},  {"_w", "h"},
    {"_", "is"}, {"at", "ion"}, {"_", "l"}, {"v", "e"},
}};

constexpr std::string_view kChatTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

void append_utf8(std::string& text, int code_point) {  // below 0x800
  if (code_point < 0x80) {
    text.push_back(static_cast<char>(code_point));
    return;
  }
  text.push_back(static_cast<char>(0xc0 | code_point >> 6));
  text.push_back(static_cast<char>(0x80 | (code_point & 0x3f)));
}

bool printable_in_latin1(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

// GPT-2's spelling (bytes_to_unicode of its encoder.py): a printable Latin-1 byte is itself, the others take the code
// points from 256 on, in order.
std::array<std::string, 256> byte_spellings() {
  std::array<std::string, 256> spellings;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    append_utf8(spellings[static_cast<size_t>(byte)], printable_in_latin1(byte) ? byte : next++);
  }
  return spellings;
}

std::string spelled(std::string_view part, const std::string& space) {
  return part.front() == '_' ? space + std::string(part.substr(1)) : std::string(part);
}

void add(SmallTokenizer& tokenizer, std::string token, bool special) {
  tokenizer.tokens.push_back(std::move(token));
  tokenizer.special.push_back(special);
}

}  // namespace

Result<SmallTokenizer> make_small_tokenizer(int vocab) {
  if (vocab < SmallTokenizer::kVocabMin) {
    return fail(Code::kInvalidArgument, "a vocabulary of {} can't spell every byte; give at least {}", vocab,
                SmallTokenizer::kVocabMin);
  }
  SmallTokenizer tokenizer;
  tokenizer.chat_template = kChatTemplate;
  for (const char* token : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) add(tokenizer, token, true);
  const auto spellings = byte_spellings();
  for (const auto& spelling : spellings) add(tokenizer, spelling, false);
  const auto size = [&] { return static_cast<int>(tokenizer.tokens.size()); };
  for (const auto& [left, right] : kMerges) {
    if (size() == vocab) break;
    const std::string left_text = spelled(left, spellings[' ']);
    const std::string right_text = spelled(right, spellings[' ']);
    tokenizer.merges.push_back(left_text + " " + right_text);
    add(tokenizer, left_text + right_text, false);
  }
  for (int i = 0; size() < vocab; ++i) add(tokenizer, fmt::format("<|reserved_{}|>", i), true);
  return tokenizer;
}

ordered_json tokenizer_json(const SmallTokenizer& tokenizer) {
  ordered_json added = ordered_json::array();
  ordered_json vocab = ordered_json::object();
  for (size_t id = 0; id < tokenizer.tokens.size(); ++id) {
    const auto& token = tokenizer.tokens[id];
    vocab.push_back({token, id});  // ordered_json looks a key up in linear time; tokens are known to differ
    if (!tokenizer.special[id]) continue;
    added.push_back({{"id", id},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const ordered_json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", vocab},
            {"merges", tokenizer.merges}}}};
}

ordered_json tokenizer_config_json(const SmallTokenizer& tokenizer) {
  return {{"add_prefix_space", false},
          {"bos_token", tokenizer.tokens[SmallTokenizer::kBosId]},
          {"chat_template", tokenizer.chat_template},
          {"clean_up_tokenization_spaces", false},
          {"eos_token", tokenizer.tokens[SmallTokenizer::kEosId]},
          {"pad_token", tokenizer.tokens[SmallTokenizer::kEosId]},
          {"tokenizer_class", "GPT2Tokenizer"},
          {"unk_token", tokenizer.tokens[0]}};
}

void set_tokenizer_metadata(const SmallTokenizer& tokenizer, GgufWriter& writer) {
  constexpr int32_t kNormal = 1, kControl = 3;  // llama.cpp's token types
  std::vector<int32_t> types;
  for (const bool special : tokenizer.special) types.push_back(special ? kControl : kNormal);
  writer.set("tokenizer.ggml.model", "gpt2");
  writer.set("tokenizer.ggml.pre", "gpt-2");
  writer.set_array("tokenizer.ggml.tokens", tokenizer.tokens);
  writer.set_array("tokenizer.ggml.token_type", types);
  writer.set_array("tokenizer.ggml.merges", tokenizer.merges);
  writer.set("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(SmallTokenizer::kBosId));
  writer.set("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(SmallTokenizer::kEosId));
  writer.set("tokenizer.ggml.unknown_token_id", uint32_t{0});
  writer.set("tokenizer.ggml.padding_token_id", static_cast<uint32_t>(SmallTokenizer::kEosId));
  writer.set("tokenizer.ggml.add_bos_token", false);
  writer.set("tokenizer.ggml.add_space_prefix", false);
  writer.set("tokenizer.chat_template", tokenizer.chat_template);
}

}  // namespace baton::weights
