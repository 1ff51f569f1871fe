// Where an engine may connect to because a request says so (kv_transfer_params: remote_host, metaserver): a client that
// reaches the API must not make it knock at any door of its network. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace baton::transfer {

class PeerFilter {
 public:
  // Without a list: every address but those that no engine has (link-local ones, where clouds keep their metadata,
  // multicast, broadcast, unspecified).
  PeerFilter() = default;
  // Addresses ("10.0.0.7", "fd00::7"), networks ("10.0.0.0/8") and host names, which stand for whatever they resolve
  // to. kInvalidArgument names the entry that is none of these.
  static Result<PeerFilter> parse(const std::vector<std::string>& entries);

  // `address`, as numbers, is what `host` resolved to (or is).
  bool allows(std::string_view host, std::string_view address) const;
  // For net::ConnectOptions and net::HttpClientOptions.
  std::function<bool(std::string_view, std::string_view)> predicate() const;

 private:
  struct Network {
    std::array<unsigned char, 16> bytes{};  // IPv4 as ::ffff:a.b.c.d
    int bits = 0;
  };
  bool listed_ = false;
  std::vector<Network> networks_;
  std::vector<std::string> names_;  // lower case
};

}  // namespace baton::transfer
