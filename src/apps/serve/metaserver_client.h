// Announces a decode engine's requests to the proxy: POSTs to the metaserver's URL that came with each. A thread of its
// own, for any number of calls, each of which may last as long as a prefill.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"

namespace baton::apps {

class MetaserverClient {
 public:
  MetaserverClient();
  ~MetaserverClient();
  // Any thread. Up to three attempts while it can't be reached; `done` is called once, on the client's thread: 200 is
  // success. After stop() it is not called any more.
  void call(std::string url, nlohmann::json body, std::function<void(Result<void>)> done);
  // Gives up what is under way and joins the thread. Calls after it come to nothing.
  void stop();

 private:
  struct Inner;
  std::unique_ptr<Inner> inner_;
};

}  // namespace baton::apps
