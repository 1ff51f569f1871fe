// What goes between proxy and engines: one call is one connection; it keeps the order, and it may go silent or break.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "base/status.h"
#include "net/http.h"
#include "sim/world.h"

namespace baton::sim {

struct StreamBegins {};
struct StreamEvent {
  std::string data;
};
struct StreamEnds {
  Result<void> how;
};
// A whole answer, or that none will come.
using Reply = std::variant<Result<net::HttpResponse>, StreamBegins, StreamEvent, StreamEnds>;

struct Call {
  std::string node;
  std::string request_id, body;
  bool closed = false;  // no reply is wanted or will come
  bool silent = false;  // what is sent from here on is lost
  bool begun = false;   // a stream
  TimePoint last_to_proxy, last_to_engine;
  std::function<void(Reply)> on_reply;
};
using CallPtr = std::shared_ptr<Call>;

}  // namespace baton::sim
