// The body of a request as vLLM's bench sends it, and what is read out of an answer's events. Pure functions.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "bench/sample.h"

namespace baton::bench {

struct PayloadOptions {
  bool chat = false;  // /v1/chat/completions
  std::string model;
  bool ignore_eos = false;
  std::optional<int> logprobs;
  nlohmann::json extra = nlohmann::json::object();  // over all else
};
std::string request_body(const Sample& sample, const PayloadOptions& options);

// What one event says.
struct Chunk {
  bool has_choice = false;  // a piece of the answer, though its text may be empty
  std::string text;
  std::optional<int64_t> prompt_tokens, output_tokens;
};
// Keeps its buffers from one event to the next; one thread.
class ChunkReader {
 public:
  ChunkReader();
  ~ChunkReader();
  // kUnavailable with the server's words for an error event, kDataLoss for what is no JSON. `want_text`: fill text.
  Result<Chunk> read(std::string_view event, bool want_text);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace baton::bench
