#include "apps/serve/own_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

namespace baton::apps {
namespace {

constexpr unsigned kInterfaceIsUp = 1;  // IFF_UP of the system's net/if.h, a name that is taken by our room

std::string numeric(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET) bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  if (address->sa_family == AF_INET6) bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (bytes == nullptr || inet_ntop(address->sa_family, bytes, text.data(), text.size()) == nullptr) return {};
  return text.data();
}

bool is_link_local(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

struct Interface {
  std::string name;
  std::string address;
  int family = 0;
};

std::vector<Interface> interfaces_up() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* item = list; item != nullptr; item = item->ifa_next) {
    if (item->ifa_addr == nullptr || (item->ifa_flags & kInterfaceIsUp) == 0 || is_link_local(item->ifa_addr)) continue;
    const std::string address = numeric(item->ifa_addr);
    if (!address.empty()) found.push_back({item->ifa_name, address, item->ifa_addr->sa_family});
  }
  return found;
}

std::vector<std::string> split_names(const std::string& names) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    std::string part = names.substr(begin, end - begin);
    if (part.starts_with('=')) part.erase(0, 1);
    if (!part.empty()) parts.push_back(part);
    begin = end + 1;
  }
  return parts;
}

// A datagram socket that is connected and never written to: the kernel only chooses the route.
std::string source_of_route(const addrinfo& target) {
  const int socket = ::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return {};
  std::string found;
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  if (connect(socket, target.ai_addr, target.ai_addrlen) == 0 &&
      getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) == 0) {
    found = numeric(reinterpret_cast<const sockaddr*>(&own));
  }
  close(socket);
  return found;
}

}  // namespace

Result<std::string> address_of_interface(const std::string& names) {
  const auto interfaces = interfaces_up();
  for (const auto& name : split_names(names)) {
    for (const int family : {AF_INET, AF_INET6}) {
      const auto it = std::find_if(interfaces.begin(), interfaces.end(),
                                   [&](const Interface& one) { return one.name == name && one.family == family; });
      if (it != interfaces.end()) return it->address;
    }
  }
  std::string known;
  for (const auto& one : interfaces)
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", one.name, one.address);
  return fail(Code::kNotFound, "no interface '{}' with an address is up; there are: {}", names, known);
}

Result<std::string> address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  // Some port is needed for a destination; no packet goes there.
  if (const int error = getaddrinfo(host.c_str(), "9", &hints, &list); error != 0) {
    return fail(Code::kNotFound, "host '{}': {}", host, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  for (const addrinfo* item = list; item != nullptr; item = item->ai_next) {
    if (const auto address = source_of_route(*item); !address.empty()) return address;
  }
  return fail(Code::kNotFound, "host '{}': this machine has no route there", host);
}

bool is_numeric_address(const std::string& text) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 || inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1;
}

}  // namespace baton::apps
