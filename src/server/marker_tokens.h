// The markers of an output format that are single tokens of a vocabulary. Pure.
#pragma once

#include <set>
#include <string>

#include "text/output_parser.h"
#include "text/tokenizer.h"

namespace baton::server {

struct MarkerTokens {
  std::set<std::string> spellings;
  std::set<TokenId> ids;
};

inline MarkerTokens marker_tokens_of(const text::OutputFormat& format, bool calls, const text::Tokenizer& tokenizer) {
  MarkerTokens tokens;
  for (auto& marker : format.markers(calls)) {
    const auto id = tokenizer.token_id(marker);
    if (!id || tokenizer.token_bytes(*id) != marker) continue;
    tokens.ids.insert(*id);
    tokens.spellings.insert(std::move(marker));
  }
  return tokens;
}

}  // namespace baton::server
