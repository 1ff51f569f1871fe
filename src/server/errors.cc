#include "server/errors.h"

#include "server/json_text.h"

namespace baton::server {
namespace {

struct Mapping {
  int status;
  const char* type;
};

Mapping mapping_of(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
    case Code::kOutOfRange:
      return {400, "BadRequestError"};
    case Code::kNotFound:
      return {404, "NotFoundError"};
    case Code::kAlreadyExists:
    case Code::kFailedPrecondition:
      return {409, "ConflictError"};
    case Code::kUnauthenticated:
      return {401, "AuthenticationError"};
    case Code::kUnimplemented:
      return {501, "NotImplementedError"};
    case Code::kResourceExhausted:
      return {429, "RateLimitError"};
    case Code::kUnavailable:
    case Code::kCancelled:
      return {503, "ServiceUnavailableError"};
    case Code::kDeadlineExceeded:
      return {504, "TimeoutError"};
    case Code::kDataLoss:
    case Code::kMismatch:
    case Code::kInternal:
      return {500, "InternalServerError"};
  }
  return {500, "InternalServerError"};
}

}  // namespace

ApiError to_api_error(const Status& status, std::optional<std::string> param) {
  const Mapping mapping = mapping_of(status.code());
  return {mapping.status, mapping.type, status.message(), std::move(param)};
}

nlohmann::ordered_json error_body(const ApiError& error) {
  nlohmann::ordered_json inner;
  inner["message"] = error.message;
  inner["type"] = error.type;
  inner["param"] = error.param ? nlohmann::ordered_json(*error.param) : nlohmann::ordered_json(nullptr);
  inner["code"] = error.status;
  return {{"error", std::move(inner)}};
}

net::HttpResponse error_response(const ApiError& error) {
  net::HttpResponse response{.status = error.status, .body = to_text(error_body(error))};
  response.headers.set("Content-Type", "application/json");
  if (error.status == 429 || error.status == 503) response.headers.set("Retry-After", "1");
  return response;
}

}  // namespace baton::server
