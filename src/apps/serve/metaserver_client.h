// Announces a decode engine's requests to the proxy: POSTs to the metaserver's URL (http or https) that came with each.
// A thread of its own, for any number of calls, each of which may last as long as a prefill.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "net/stream.h"

namespace baton::apps {

class MetaserverClient {
 public:
  struct Options {
    net::TlsOptions tls;  // for https:// URLs: whom to trust, and who we are
    // As net::ConnectOptions::allow: the URL comes with a request.
    std::function<bool(std::string_view host, std::string_view address)> allow = nullptr;
  };
  explicit MetaserverClient(Options options);
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
