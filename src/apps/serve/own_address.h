// Which of this host's addresses other processes shall use. Looks at interfaces and routes; sends nothing.
#pragma once

#include <string>

#include "base/status.h"

namespace baton::apps {

// The first address (IPv4 before IPv6) of the first of the interfaces in `names` ("eth0", "eth0,eth1", "=eth0") that is
// up. kNotFound lists the interfaces that there are.
Result<std::string> address_of_interface(const std::string& names);
// The local address that packets to `host` would carry. kNotFound when there is no route or no such host.
Result<std::string> address_towards(const std::string& host);
bool is_numeric_address(const std::string& text);

}  // namespace baton::apps
