#include "text/tokenizer/gguf_pre.h"

#include <fmt/ranges.h>

#include "text/tokenizer/pre_tokenizer.h"

namespace baton::text {
namespace {

constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kLineEnd = R"([\r\n])";
// Cased letters of all scripts.
constexpr std::string_view kDeepseekLetters =
    R"(\s?[A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-\x{2af})"
    R"(\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}\x{3a3}-\x{3f5})"
    R"(\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}\x{13f8}-\x{13fd}\x{1c90}-\x{1cba})"
    R"(\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d})"
    R"(\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4})"
    R"(\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec})"
    R"(\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}\x{2126})"
    R"(\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184})"
    R"(\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b})"
    R"(\x{a722}-\x{a76f}\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17})"
    R"(\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2})"
    R"(\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943}]+)";
constexpr std::string_view kDeepseekPunctuation =
    R"(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)";
constexpr std::string_view kTrailingSpace = R"(\s+$)";
constexpr std::string_view kDeepseekCjk = R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)";
constexpr std::string_view kDigit = R"(\p{N})";

constexpr std::string_view kThreeDigits = R"(\p{N}{1,3})";
constexpr std::string_view kCjkAndKana = R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";
constexpr std::string_view kDeepseek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kKimi =
    R"([\p{Han}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What llama.cpp uses for files that name none.
constexpr std::string_view kDefaultPunctuation = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr std::string_view kNumbers = R"(\p{N}+)";
constexpr std::string_view kThreeAsciiDigits = R"([0-9][0-9][0-9])";

struct Named {
  std::string_view name;
  GgufPre pre;
};

const std::vector<Named>& table() {
  static const std::vector<Named> names = {
      {"default", {{kDefaultPunctuation, gpt2_pattern(), kNumbers, kThreeAsciiDigits}}},
      {"gpt-2", {{gpt2_pattern()}}},
      {"gpt2", {{gpt2_pattern()}}},
      {"smollm", {{kDigit, gpt2_pattern()}}},
      {"starcoder", {{kDigit, gpt2_pattern()}}},
      {"llama-bpe", {.patterns = {kLlama3}, .ignore_merges = true, .add_bos = true}},
      {"llama3", {.patterns = {kLlama3}, .ignore_merges = true, .add_bos = true}},
      {"llama-v3", {.patterns = {kLlama3}, .ignore_merges = true, .add_bos = true}},
      {"qwen2", {{kQwen2}}},
      {"deepseek-r1-qwen", {{kQwen2}}},
      {"deepseek-llm", {{kLineEnd, kDeepseekLetters, kDeepseekPunctuation, kTrailingSpace, kDeepseekCjk, kDigit}}},
      {"deepseek-coder", {{kLineEnd, R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepseekCjk, kDigit}}},
      {"deepseek-v3", {{kThreeDigits, kCjkAndKana, kDeepseek3}}},
      {"kimi-k2", {{kKimi}}},
  };
  return names;
}

}  // namespace

Result<GgufPre> gguf_pre(std::string_view name) {
  if (name.empty()) name = "default";
  std::vector<std::string_view> known;
  for (const Named& one : table()) {
    if (one.name == name) return one.pre;
    known.push_back(one.name);
  }
  return fail(Code::kUnimplemented, "tokenizer.ggml.pre \"{}\" is not supported; these are: {}", name,
              fmt::join(known, ", "));
}

}  // namespace baton::text
