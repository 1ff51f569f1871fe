// OpenAI-shaped errors: the one place where a Status becomes an HTTP status.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/status.h"
#include "net/http.h"

namespace baton::server {

struct ApiError {
  int status = 500;
  std::string type;  // "BadRequestError"
  std::string message;
  std::optional<std::string> param;  // the field that is wrong, dotted
};

ApiError to_api_error(const Status& status, std::optional<std::string> param = std::nullopt);

// {"error": {"message", "type", "param", "code"}}
nlohmann::ordered_json error_body(const ApiError& error);
net::HttpResponse error_response(const ApiError& error);

}  // namespace baton::server
