// The first words on every connection of a meeting: each side proves, over fresh nonces, that it knows the key (the
// shared secret; between members also the cookie of their group). It keeps strangers out; it doesn't encrypt.
//
// Host -> guest: magic, version, place, "a secret is set", nonce. Guest -> host: magic, version, place, "a secret is
// set", nonce, HMAC-SHA256(key, "guest", place, both nonces). Host -> guest: verdict, the same of "host".
#pragma once

#include <string>

#include "net/stream.h"

namespace baton::parallel {

enum class GreetingPlace : uint16_t { kDesk = 1, kMember = 2 };

struct GreetingKey {
  GreetingPlace place = GreetingPlace::kDesk;
  std::string secret;
  std::string cookie;  // of members
};

// kUnauthenticated says which side disagrees about the secret, kDataLoss what isn't this protocol, kMismatch another
// version.
net::Task<Result<void>> greet_as_host(net::Stream& stream, const GreetingKey& key, Duration timeout);
net::Task<Result<void>> greet_as_guest(net::Stream& stream, const GreetingKey& key, Duration timeout);

// `bytes` of the system's random numbers.
Result<std::string> random_bytes(size_t bytes);

}  // namespace baton::parallel
