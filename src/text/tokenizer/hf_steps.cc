#include "text/tokenizer/hf_steps.h"

#include "text/tokenizer/step_bounds.h"
#include "text/tokenizer/vocabulary.h"

namespace baton::text {
namespace {

std::unexpected<Status> unsupported(std::string_view kind, std::string_view what) {
  return fail(Code::kUnimplemented, "tokenizer.json: {} {} is not supported", kind, what);
}

// {"String": "x"} or {"Regex": "x"}; plain strings as some writers have them.
struct Pattern {
  std::string text;
  bool is_regex;
};
Result<Pattern> parse_pattern(const Json& json, std::string_view where) {
  if (json_member(json, "Regex").is_string()) return Pattern{json_string(json, "Regex"), true};
  const std::string text = json.is_string() ? json.get<std::string>() : json_string(json, "String");
  if (text.empty()) return fail(Code::kInvalidArgument, "tokenizer.json: {} has no pattern", where);
  return Pattern{text, false};
}

Result<Regex> compile(const Pattern& pattern) {
  return pattern.is_regex ? Regex::compile(pattern.text) : Regex::literal(pattern.text);
}

// Calls `one` for a component, or for each member of a Sequence of `list` (nested ones too).
template <typename One>
Result<void> each_component(const Json& json, std::string_view list, One&& one) {
  if (json.is_null()) return {};
  if (json_type(json) != "Sequence") return one(json);
  const Json& members = json_member(json, list);
  if (!members.is_array()) return fail(Code::kInvalidArgument, "tokenizer.json: a Sequence without \"{}\"", list);
  for (const Json& member : members) BATON_TRY(each_component(member, list, one));
  return {};
}

Result<void> add_normalizer(const Json& json, Normalizer& out) {
  const std::string type = json_type(json);
  if (type == "NFC") return out.add(make_unicode_form(NormalForm::kNfc)), Result<void>{};
  if (type == "NFD") return out.add(make_unicode_form(NormalForm::kNfd)), Result<void>{};
  if (type == "NFKC") return out.add(make_unicode_form(NormalForm::kNfkc)), Result<void>{};
  if (type == "NFKD") return out.add(make_unicode_form(NormalForm::kNfkd)), Result<void>{};
  if (type == "Lowercase") return out.add(make_lower_case()), Result<void>{};
  if (type == "Prepend") return out.add(make_prepend(json_string(json, "prepend"))), Result<void>{};
  if (type == "Strip") {
    out.add(make_strip(json_bool(json, "strip_left", true), json_bool(json, "strip_right", true)));
    return {};
  }
  if (type == "Replace") {
    BATON_TRY_ASSIGN(const Pattern pattern, parse_pattern(json_member(json, "pattern"), "normalizer Replace"));
    const std::string content = json_string(json, "content");
    if (!pattern.is_regex) return out.add(make_replace(pattern.text, content)), Result<void>{};
    BATON_TRY_ASSIGN(Regex regex, compile(pattern));
    out.add(make_regex_replace(std::move(regex), content));
    return {};
  }
  return unsupported("normalizer", type);
}

Result<SplitBehavior> parse_behavior(const Json& json, std::string_view where) {
  const std::string name = json_string(json, "behavior");
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return unsupported(where, fmt::format("behavior \"{}\"", name));
}

Result<void> add_split(std::string_view pattern, SplitBehavior behavior, bool invert, PreTokenizer& out) {
  BATON_TRY_ASSIGN(Regex regex, Regex::compile_pcre(pattern));
  out.push_back(make_split(std::move(regex), behavior, invert));
  return {};
}

Result<void> add_metaspace(const Json& json, PreTokenizer& out) {
  MetaspaceOptions options;
  options.replacement = json_string(json, "replacement", options.replacement);
  if (options.replacement.empty()) return unsupported("pre_tokenizer Metaspace", "with an empty replacement");
  const std::string scheme = json_string(json, "prepend_scheme", "");
  const bool prefix = json_bool(json, "add_prefix_space", true);
  if (scheme == "first") {
    options.scheme = PrependScheme::kFirst;
  } else if (scheme == "never" || (scheme.empty() && !prefix)) {
    options.scheme = PrependScheme::kNever;
  } else if (!scheme.empty() && scheme != "always") {
    return unsupported("pre_tokenizer Metaspace", fmt::format("prepend_scheme \"{}\"", scheme));
  }
  options.split = json_bool(json, "split", true);
  BATON_TRY_ASSIGN(auto step, make_metaspace(options));
  out.push_back(std::move(step));
  return {};
}

Result<void> add_pre_tokenizer(const Json& json, ParsedPreTokenizer& out) {
  const std::string type = json_type(json);
  if (out.byte_level) return unsupported("pre_tokenizer", type + " behind ByteLevel");
  if (type == "ByteLevel") {
    out.byte_level = true;
    if (json_bool(json, "add_prefix_space", true)) out.steps.push_back(make_prefix_space());
    if (json_bool(json, "use_regex", true)) {
      BATON_TRY_ASSIGN(auto split, make_regex_split(gpt2_pattern()));
      out.steps.push_back(std::move(split));
    }
    return {};
  }
  if (type == "Split") {
    BATON_TRY_ASSIGN(const Pattern pattern, parse_pattern(json_member(json, "pattern"), "pre_tokenizer Split"));
    BATON_TRY_ASSIGN(const SplitBehavior behavior, parse_behavior(json, "pre_tokenizer Split"));
    BATON_TRY_ASSIGN(Regex regex, compile(pattern));
    out.steps.push_back(make_split(std::move(regex), behavior, json_bool(json, "invert", false)));
    return {};
  }
  if (type == "Digits") {
    const bool single = json_bool(json, "individual_digits", false);
    return add_split(single ? "\\p{N}" : "\\p{N}+", SplitBehavior::kIsolated, false, out.steps);
  }
  if (type == "Punctuation") {
    SplitBehavior behavior = SplitBehavior::kIsolated;
    if (!json_member(json, "behavior").is_null()) {
      BATON_TRY_ASSIGN(behavior, parse_behavior(json, "pre_tokenizer Punctuation"));
    }
    return add_split(R"([\p{P}$+<=>^`|~])", behavior, false, out.steps);
  }
  if (type == "Whitespace") {
    constexpr std::string_view words = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+|)"
                                       R"([^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\p{White_Space}]+)";
    return add_split(words, SplitBehavior::kRemoved, true, out.steps);
  }
  if (type == "WhitespaceSplit") {
    return add_split("\\p{White_Space}", SplitBehavior::kRemoved, false, out.steps);
  }
  if (type == "Metaspace") return add_metaspace(json, out.steps);
  return unsupported("pre_tokenizer", type);
}

Result<void> add_decoder(const Json& json, bool& fused, TokenDecoder& out) {
  const std::string type = json_type(json);
  if (type == "Fuse") return fused = true, Result<void>{};
  if (type == "Strip") {
    const auto start = json_int(json_member(json, "start")).value_or(0);
    const auto stop = json_int(json_member(json, "stop")).value_or(0);
    const std::string content = json_string(json, "content", " ");
    if (stop != 0 || start < 0 || start > 1 || (start == 1 && !fused)) {
      return unsupported("decoder Strip", "other than one character from the start of the fused text");
    }
    if (start == 1) out.prefix = content;
    return {};
  }
  if (fused) return unsupported("decoder", type + " behind Fuse");
  if (type == "ByteLevel") {
    out.steps.push_back([](std::string spelling) {
      auto bytes = alphabet_to_bytes(spelling);
      return bytes ? std::move(*bytes) : std::move(spelling);
    });
    return {};
  }
  if (type == "ByteFallback") {
    out.steps.push_back([](std::string spelling) {
      const int byte = byte_of_hex_spelling(spelling);
      return byte >= 0 ? std::string(1, static_cast<char>(byte)) : std::move(spelling);
    });
    return {};
  }
  if (type == "Replace") {
    BATON_TRY_ASSIGN(const Pattern pattern, parse_pattern(json_member(json, "pattern"), "decoder Replace"));
    if (pattern.is_regex) return unsupported("decoder Replace", "with a regex");
    out.steps.push_back([from = pattern.text, to = json_string(json, "content")](std::string spelling) {
      return replace_all(spelling, from, to);
    });
    return {};
  }
  if (type == "Metaspace") {
    const std::string replacement = json_string(json, "replacement", "\xE2\x96\x81");
    if (replacement.empty()) return unsupported("decoder Metaspace", "with an empty replacement");
    const std::string scheme = json_string(json, "prepend_scheme", "always");
    if (scheme != "never" && json_bool(json, "add_prefix_space", true)) out.prefix = " ";
    out.steps.push_back([replacement](std::string spelling) { return replace_all(spelling, replacement, " "); });
    return {};
  }
  return unsupported("decoder", type);
}

Result<void> add_template(const Json& json, Surround& out) {
  const Json& parts = json_member(json, "single");
  const Json& names = json_member(json, "special_tokens");
  if (!parts.is_array()) return fail(Code::kInvalidArgument, "tokenizer.json: TemplateProcessing without \"single\"");
  int sequences = 0;
  for (const Json& part : parts) {
    const std::string name = json_string(json_member(part, "SpecialToken"), "id");
    if (name.empty()) {
      if (!part.is_object() || !part.contains("Sequence")) {
        return fail(Code::kInvalidArgument, "tokenizer.json: TemplateProcessing has a part of unknown kind");
      }
      ++sequences;
      continue;
    }
    const Json& tokens = json_member(json_member(names, name), "tokens");
    if (!tokens.is_array()) {
      return fail(Code::kInvalidArgument, "tokenizer.json: TemplateProcessing does not say what \"{}\" is", name);
    }
    for (const Json& token : tokens) {
      if (!token.is_string()) return fail(Code::kInvalidArgument, "tokenizer.json: TemplateProcessing: not a token");
      (sequences == 0 ? out.before : out.after).push_back(token.get<std::string>());
    }
  }
  if (sequences != 1) return unsupported("post_processor TemplateProcessing", "that does not hold the text once");
  return {};
}

Result<void> add_post_processor(const Json& json, Surround& out) {
  const std::string type = json_type(json);
  if (type == "ByteLevel") return {};  // moves offsets, which nothing here reads
  if (type == "TemplateProcessing") return add_template(json, out);
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    const Json& cls = json_member(json, "cls");
    const Json& sep = json_member(json, "sep");
    if (!cls.is_array() || cls.empty() || !cls[0].is_string() || !sep.is_array() || sep.empty() ||
        !sep[0].is_string()) {
      return fail(Code::kInvalidArgument, "tokenizer.json: {} without \"cls\" and \"sep\"", type);
    }
    out.before.push_back(cls[0].get<std::string>());
    out.after.push_back(sep[0].get<std::string>());
    return {};
  }
  return unsupported("post_processor", type);
}

}  // namespace

std::string TokenDecoder::bytes(std::string spelling) const {
  for (const auto& step : steps) spelling = step(std::move(spelling));
  return spelling;
}

Result<Normalizer> parse_normalizer(const Json& json) {
  Normalizer out;
  StepBounds bounds("normalizer", kTextGrowthMax);
  BATON_TRY(each_component(json, "normalizers", [&](const Json& one) -> Result<void> {
    BATON_TRY(bounds.add(normalizer_growth(one)));
    return add_normalizer(one, out);
  }));
  return out;
}

Result<ParsedPreTokenizer> parse_pre_tokenizer(const Json& json) {
  ParsedPreTokenizer out;
  StepBounds bounds("pre_tokenizer", kTextGrowthMax);
  BATON_TRY(each_component(json, "pretokenizers", [&](const Json& one) -> Result<void> {
    BATON_TRY(bounds.add(pre_tokenizer_growth(one)));
    return add_pre_tokenizer(one, out);
  }));
  return out;
}

Result<TokenDecoder> parse_decoder(const Json& json) {
  if (json.is_null()) return unsupported("decoder", "null (which joins tokens with spaces)");
  TokenDecoder out;
  bool fused = false;
  StepBounds bounds("decoder", kTokenGrowthMax);
  BATON_TRY(each_component(json, "decoders", [&](const Json& one) -> Result<void> {
    BATON_TRY(bounds.add(decoder_growth(one)));
    return add_decoder(one, fused, out);
  }));
  return out;
}

Result<Surround> parse_post_processor(const Json& json) {
  Surround out;
  BATON_TRY(each_component(json, "processors", [&](const Json& one) { return add_post_processor(one, out); }));
  return out;
}

}  // namespace baton::text
