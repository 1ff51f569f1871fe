#include "net/client_name.h"

#include <algorithm>

#include "base/hash.h"

namespace baton::net {
namespace {

constexpr size_t kAddressMax = 64;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t";
  const auto first = text.find_first_not_of(kBlank);
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// Of "127.0.0.1:4711" or "[::1]:4711"; an IPv4 address that came through an IPv6 socket is that IPv4 address.
std::string_view without_port(std::string_view peer) {
  peer = peer.substr(0, peer.rfind(':'));
  if (peer.starts_with('[') && peer.ends_with(']')) peer = peer.substr(1, peer.size() - 2);
  constexpr std::string_view kMapped = "::ffff:";
  if (peer.starts_with(kMapped) && peer.find('.') != std::string_view::npos) peer.remove_prefix(kMapped.size());
  return peer;
}

bool is_address(std::string_view text) {
  return !text.empty() && text.size() <= kAddressMax &&
         text.find_first_not_of("0123456789abcdefABCDEF.:%") == std::string_view::npos;
}

}  // namespace

std::vector<std::string> parse_forwarders(std::string_view text) {
  std::vector<std::string> parsed;
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    if (const auto entry = trimmed(text.substr(0, comma)); !entry.empty()) parsed.emplace_back(entry);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parsed;
}

std::string client_address(const HttpRequest& request, std::span<const std::string> forwarders) {
  const auto peer = without_port(request.peer);
  const bool believed = std::ranges::any_of(forwarders, [&](const auto& each) { return each == "*" || each == peer; });
  if (const auto said = request.headers.get("X-Forwarded-For"); believed && said) {
    // The last entry is the one that the forwarder itself wrote.
    const auto last = trimmed(said->substr(said->find_last_of(',') + 1));
    if (is_address(last)) return std::string(last);
  }
  return std::string(peer);
}

std::string client_name(const HttpRequest& request, bool keys_tell, std::span<const std::string> forwarders) {
  const auto key = request.headers.get("Authorization");
  if (key && keys_tell) return "key " + to_hex(sha256(std::as_bytes(std::span(*key))));
  return "from " + client_address(request, forwarders);
}

}  // namespace baton::net
