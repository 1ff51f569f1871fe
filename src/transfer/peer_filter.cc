#include "transfer/peer_filter.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <cctype>
#include <charconv>
#include <optional>

namespace baton::transfer {
namespace {

namespace ip = boost::asio::ip;
using Bytes = ip::address_v6::bytes_type;

constexpr int kMappedBits = 96;  // of ::ffff:0:0/96
constexpr size_t kEntriesMax = 4096;

Bytes bytes_of(const ip::address& address) {
  if (address.is_v4()) return ip::make_address_v6(ip::v4_mapped, address.to_v4()).to_bytes();
  return address.to_v6().to_bytes();  // the scope is of no interest
}

bool same_beginning(const Bytes& a, const Bytes& b, int bits) {
  const auto whole = static_cast<size_t>(bits / 8);
  if (!std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(whole), b.begin())) return false;
  const int rest = bits % 8;
  return rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::string_view without_brackets(std::string_view host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 253 &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '.' || c == '_'; });
}

bool no_engine_has(const ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return no_engine_has(ip::make_address_v4(ip::v4_mapped, address.to_v6()));
  }
  if (address.is_unspecified() || address.is_multicast()) return true;
  if (address.is_v6()) {
    static const auto kMetadata = ip::make_address_v6("fd00:ec2::254");
    return address.to_v6().is_link_local() || address.to_v6().to_bytes() == kMetadata.to_bytes();
  }
  const uint32_t v4 = address.to_v4().to_uint();
  return v4 >> 16 == 0xa9fe || v4 == 0xffffffff;  // 169.254.0.0/16
}

std::optional<int> parse_bits(std::string_view text, int most) {
  int bits = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bits);
  const bool good = error == std::errc{} && end == text.data() + text.size() && bits >= 0 && bits <= most;
  return good ? std::optional(bits) : std::nullopt;
}

}  // namespace

Result<PeerFilter> PeerFilter::parse(const std::vector<std::string>& entries) {
  PeerFilter filter;
  filter.listed_ = !entries.empty();
  if (entries.size() > kEntriesMax) {
    return fail(Code::kInvalidArgument, "baton_peers: {} entries, at most {} are allowed", entries.size(), kEntriesMax);
  }
  for (const auto& entry : entries) {
    const auto slash = entry.find('/');
    const auto host = without_brackets(std::string_view(entry).substr(0, slash));
    boost::system::error_code not_an_address;
    const auto address = ip::make_address(std::string(host), not_an_address);
    const auto bits = slash == std::string::npos
                          ? std::optional(128)
                          : parse_bits(std::string_view(entry).substr(slash + 1), address.is_v4() ? 32 : 128);
    if (!not_an_address && bits) {
      const bool v4_network = slash != std::string::npos && address.is_v4();
      filter.networks_.push_back({bytes_of(address), v4_network ? kMappedBits + *bits : *bits});
    } else if (not_an_address && slash == std::string::npos && is_name(entry)) {
      filter.names_.push_back(lower(entry));
    } else {
      return fail(Code::kInvalidArgument,
                  "baton_peers: '{}' is no address, network (10.0.0.0/8, fd00::/8) or host name", entry);
    }
  }
  return filter;
}

bool PeerFilter::allows(std::string_view host, std::string_view address_text) const {
  boost::system::error_code not_an_address;
  const auto address = ip::make_address(std::string(address_text), not_an_address);
  if (not_an_address) return false;
  if (!listed_) return !no_engine_has(address);
  const auto bytes = bytes_of(address);
  return std::ranges::any_of(networks_, [&](const auto& n) { return same_beginning(bytes, n.bytes, n.bits); }) ||
         std::ranges::find(names_, lower(without_brackets(host))) != names_.end();
}

std::function<bool(std::string_view, std::string_view)> PeerFilter::predicate() const {
  return [filter = *this](std::string_view host, std::string_view address) { return filter.allows(host, address); };
}

}  // namespace baton::transfer
