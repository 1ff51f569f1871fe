// Who asks, as far as fairness goes. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "net/http.h"

namespace baton::net {

// "10.0.0.1, ::1" or "*" (anybody), as uvicorn's --forwarded-allow-ips: peers whose X-Forwarded-For is believed.
std::vector<std::string> parse_forwarders(std::string_view text);

// The address without its port that a request comes from: its peer's, or, where that one is a forwarder, what it says.
std::string client_address(const HttpRequest& request, std::span<const std::string> forwarders);

// Clients share a queue by this name: that of their key, or else their address. Not the key itself: names stay in
// memory for longer than requests do. `keys_tell`: keys are checked, and there are several. One that nobody checks
// could be another in each request, and the only one that there is names nobody.
std::string client_name(const HttpRequest& request, bool keys_tell, std::span<const std::string> forwarders);

}  // namespace baton::net
