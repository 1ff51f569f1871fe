#include "server/logprobs_json.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace baton::server {
namespace {

float floored(float logprob) { return std::max(logprob, -9999.0f); }

Json bytes_json(const std::string& bytes) {
  Json list = Json::array();
  for (unsigned char c : bytes) list.push_back(static_cast<int>(c));
  return list;
}

}  // namespace

Json completion_logprobs_json(const std::vector<LogprobEntry>& entries, int64_t first_offset) {
  Json offsets = Json::array(), logprobs = Json::array(), tokens = Json::array(), tops = Json::array();
  int64_t offset = first_offset;
  for (const auto& entry : entries) {
    offsets.push_back(offset);
    offset += static_cast<int64_t>(entry.token.size());
    tokens.push_back(entry.token);
    const bool unknown = std::isnan(entry.logprob);  // the first token of an echoed prompt
    logprobs.push_back(unknown ? Json(nullptr) : Json(entry.logprob));
    Json top = Json::object();
    // The chosen token is always listed, also when it is not among the best.
    for (const auto& alternative : entry.top) top[alternative.token] = alternative.logprob;
    if (!unknown) top[entry.token] = entry.logprob;
    tops.push_back(unknown ? Json(nullptr) : std::move(top));
  }
  return {{"text_offset", std::move(offsets)},
          {"token_logprobs", std::move(logprobs)},
          {"tokens", std::move(tokens)},
          {"top_logprobs", std::move(tops)}};
}

Json chat_logprobs_json(const std::vector<LogprobEntry>& entries, int top) {
  Json content = Json::array();
  for (const auto& entry : entries) {
    Json alternatives = Json::array();
    for (const auto& other : entry.top) {
      if (top >= 0 && static_cast<int>(alternatives.size()) >= top) break;
      alternatives.push_back({{"token", other.token}, {"logprob", other.logprob}, {"bytes", bytes_json(other.bytes)}});
    }
    content.push_back({{"token", entry.token},
                       {"logprob", entry.logprob},
                       {"bytes", bytes_json(entry.bytes)},
                       {"top_logprobs", std::move(alternatives)}});
  }
  return {{"content", std::move(content)}};
}

std::vector<LogprobEntry> prompt_entries(const text::Tokenizer& tokenizer, std::span<const TokenId> ids,
                                         const std::vector<std::vector<engine::TokenLogprob>>& logprobs, int top) {
  std::vector<LogprobEntry> entries;
  for (size_t i = 0; i < ids.size(); ++i) {
    LogprobEntry entry{.token = ChoiceStream::spelling(tokenizer, ids[i], false),
                       .bytes = std::string(tokenizer.token_bytes(ids[i])),
                       .logprob = std::numeric_limits<float>::quiet_NaN()};
    if (i > 0 && i - 1 < logprobs.size() && !logprobs[i - 1].empty()) {
      entry.logprob = floored(logprobs[i - 1].front().logprob);
      for (size_t j = 1; j < logprobs[i - 1].size() && (top < 0 || static_cast<int>(j) <= top); ++j) {
        entry.top.push_back({.token = ChoiceStream::spelling(tokenizer, logprobs[i - 1][j].token, false),
                             .bytes = {},
                             .logprob = floored(logprobs[i - 1][j].logprob)});
      }
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

Json prompt_logprobs_json(const text::Tokenizer& tokenizer, std::span<const TokenId> ids,
                          const std::vector<std::vector<engine::TokenLogprob>>& logprobs) {
  Json list = Json::array();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i == 0 || i - 1 >= logprobs.size()) {
      list.push_back(nullptr);
      continue;
    }
    Json entry = Json::object();
    for (const auto& logprob : logprobs[i - 1]) {
      entry[std::to_string(logprob.token)] = {
          {"logprob", floored(logprob.logprob)},
          {"rank", logprob.rank},
          {"decoded_token", ChoiceStream::spelling(tokenizer, logprob.token, false)}};
    }
    list.push_back(std::move(entry));
  }
  return list;
}

Json stop_reason_json(const ChoiceDelta& delta) {
  if (const auto* text = std::get_if<std::string>(&delta.stop_reason)) return *text;
  if (const auto* token = std::get_if<TokenId>(&delta.stop_reason)) return *token;
  return nullptr;
}

}  // namespace baton::server
