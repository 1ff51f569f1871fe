// Cuts text as Kimi's tokenizer does before BPE: the eight alternatives of its pattern, written out by hand, since
// class intersection and look-ahead in one pattern are beyond most regex libraries. Linear; pure; any thread.
//
//   1 [\p{Han}]+
//   2 [^\r\n\p{L}\p{N}]?[U]*[V]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?     U = Lu Lt Lm Lo M, V = Ll Lm Lo M, neither Han
//   3 [^\r\n\p{L}\p{N}]?[U]+[V]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//   4 \p{N}{1,3}   5 " "?[^\s\p{L}\p{N}]+[\r\n]*   6 \s*[\r\n]+   7 \s+(?!\S)   8 \s+
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "text/tokenizer/pieces.h"

namespace baton::text {

// Appends the pieces of `text` (valid UTF-8), which cover it.
void split_kimi(std::string_view text, std::vector<Span>& out);

// The cuts that come before: parts of 400,000 characters, and within these after each 25,000 characters of a run that
// is all white space (Python's str.isspace) or all not. Each part is split and encoded alone.
void cut_kimi(std::string_view text, std::vector<Span>& out);

}  // namespace baton::text
