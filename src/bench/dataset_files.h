// Loads read from files; see dataset.h, which everybody else includes.
#pragma once

#include <vector>

#include "bench/dataset.h"

namespace baton::bench {

// A JSON array of {"conversations": [{"value": ...}, {"value": ...}, ...]}: the first two turns are prompt and answer.
// Turns that are very short or very long are left out, as in vLLM.
Result<std::vector<Sample>> sharegpt_dataset(const DatasetOptions& options, const text::Tokenizer& tokenizer);
// JSON lines {"prompt": "...", "output_tokens": 10}; the second is needed with custom_output_len -1 only.
Result<std::vector<Sample>> custom_dataset(const DatasetOptions& options, const text::Tokenizer& tokenizer);
// JSON lines {"timestamp": ..., "input_length": ..., "output_length": ..., "hash_ids": [...]}: equal hashes stand for
// equal pieces of prompts. The first line's time is the start.
Result<std::vector<Sample>> timed_trace(const DatasetOptions& options, const text::Tokenizer& tokenizer);

}  // namespace baton::bench
