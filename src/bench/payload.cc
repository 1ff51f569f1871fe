#include "bench/payload.h"

#include <simdjson.h>

namespace baton::bench {
namespace {

using nlohmann::json;
namespace dom = simdjson::dom;

std::optional<int64_t> count_of(const dom::element& usage, std::string_view key) {
  int64_t value = 0;
  if (usage[key].get_int64().get(value) != simdjson::SUCCESS) return std::nullopt;
  return value;
}

// The text of a choice: of a completion, or of a chat's delta with its reasoning.
std::string text_of(const dom::element& choice) {
  std::string text;
  const auto append = [&](const dom::element& object, std::string_view key) {
    std::string_view piece;
    if (object[key].get_string().get(piece) == simdjson::SUCCESS) text += piece;
  };
  append(choice, "text");
  dom::element delta;
  if (choice["delta"].get(delta) == simdjson::SUCCESS && delta.is_object()) {
    for (const std::string_view key : {"reasoning_content", "reasoning", "content"}) append(delta, key);
  }
  return text;
}

}  // namespace

std::string request_body(const Sample& sample, const PayloadOptions& options) {
  json body{{"model", options.model}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
  if (options.chat) {
    body["messages"] =
        json::array({{{"role", "user"}, {"content", json::array({{{"type", "text"}, {"text", sample.prompt}}})}}});
    body["max_completion_tokens"] = sample.output_tokens;
  } else {
    body["prompt"] = sample.prompt;
    body["repetition_penalty"] = 1.0;
    body["max_tokens"] = sample.output_tokens;
  }
  if (options.logprobs) body["logprobs"] = *options.logprobs;
  if (options.ignore_eos) body["ignore_eos"] = true;
  body.update(options.extra);
  return body.dump(-1, ' ', false, json::error_handler_t::replace);
}

struct ChunkReader::Parser {
  dom::parser parser;
};
ChunkReader::ChunkReader() : parser_(std::make_unique<Parser>()) {}
ChunkReader::~ChunkReader() = default;

Result<Chunk> ChunkReader::read(std::string_view event, bool want_text) {
  dom::element root;
  if (parser_->parser.parse(event.data(), event.size()).get(root) != simdjson::SUCCESS || !root.is_object()) {
    return fail(Code::kDataLoss, "the server sent an event that is no JSON object: {}", event.substr(0, 200));
  }
  Chunk chunk;
  dom::element error;
  if (root["error"].get(error) == simdjson::SUCCESS && !error.is_null()) {
    return fail(Code::kUnavailable, "{}", simdjson::minify(error));
  }
  dom::element choice;
  if (root["choices"].at(0).get(choice) == simdjson::SUCCESS && choice.is_object()) {
    chunk.has_choice = true;
    if (want_text) chunk.text = text_of(choice);
  }
  dom::element usage;
  if (root["usage"].get(usage) == simdjson::SUCCESS && usage.is_object()) {
    chunk.prompt_tokens = count_of(usage, "prompt_tokens");
    chunk.output_tokens = count_of(usage, "completion_tokens");
  }
  return chunk;
}

}  // namespace baton::bench
