// The body of a request: fields within their bounds, or an error that can be sent as JSON.
#include <cstdlib>

#include "server/request_fields.h"
#include "server/testing/byte_tokenizer.h"
#include "server/tool_use.h"

namespace {

using namespace baton::server;

void require(bool holds) {
  if (!holds) std::abort();
}

// An answer must be valid JSON whatever bytes it quotes.
void check_error(const ApiError& error) {
  require(error.status >= 400 && error.status < 600);
  require(nlohmann::json::accept(error_response(error).body));
}

void check_fields(const CommonFields& fields, const RequestLimits& limits) {
  require(fields.n >= 1 && fields.n <= limits.max_n);
  require(fields.stop.size() <= limits.max_stop_strings);
  require(fields.sampling.temperature >= 0 && fields.sampling.top_p > 0 && fields.sampling.top_p <= 1);
  for (const auto& [token, bias] : fields.sampling.logit_bias) require(token >= 0 && token < limits.vocab_size);
  for (const auto id : fields.sampling.stop_token_ids) require(id >= 0 && id < limits.vocab_size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const testing::ByteTokenizer tokenizer;
  RequestLimits limits;
  limits.vocab_size = 258;
  auto body = parse_body({reinterpret_cast<const char*>(data), size});
  if (!body) return check_error(body.error()), 0;
  const auto fields = parse_common(*body, {}, limits, tokenizer);
  if (fields) {
    check_fields(*fields, limits);
  } else {
    check_error(fields.error());
  }
  ServerOptions options;
  options.output_format = baton::text::OutputFormat::make("", "hermes").value();
  options.enable_auto_tool_choice = true;
  if (const auto tools = parse_tool_use(options, *body, false); !tools) check_error(tools.error());
  if (const auto messages = body->find("messages"); messages != body->end() && messages->is_array()) {
    for (auto& message : *messages) {
      if (!message.is_object()) continue;
      if (const auto adapted = adapt_tool_calls(message, "messages[0]"); !adapted) check_error(adapted.error());
    }
  }
  return 0;
}
