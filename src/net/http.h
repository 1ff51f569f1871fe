// HTTP/1.1 messages, shared by server and client.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton::net {

// Header fields in order; names compare without case.
class HttpHeaders {
 public:
  void add(std::string name, std::string value) { fields_.emplace_back(std::move(name), std::move(value)); }
  void set(std::string_view name, std::string value);
  void erase(std::string_view name);
  std::optional<std::string_view> get(std::string_view name) const;  // the first
  const std::vector<std::pair<std::string, std::string>>& all() const { return fields_; }

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

struct HttpRequest {
  std::string method;  // "POST"
  std::string target;  // as sent: "/v1/models?x=1"
  std::string path;    // percent-decoded, without the query: "/v1/models"
  std::string query;   // raw, without '?'
  HttpHeaders headers;
  std::string body;
  std::string peer;  // who sent it
};

struct HttpResponse {
  int status = 200;
  HttpHeaders headers;
  std::string body;
};

std::string_view http_reason(int status);  // "Not Found"
// The value of `key` in a raw query, percent-decoded.
std::optional<std::string> query_value(std::string_view query, std::string_view key);

}  // namespace baton::net
