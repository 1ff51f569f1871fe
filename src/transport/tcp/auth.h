// Shared-secret check at the start of a connection: each side proves that it knows the secret, over fresh nonces.
//
// P -> D: magic, version, flag "secret asked for", nonce. D -> P: nonce, HMAC-SHA256(secret, "baton hand-off D" | both
// nonces). P -> D: verdict, HMAC-SHA256(secret, "baton hand-off P" | both nonces). It keeps strangers out; it neither
// encrypts nor authenticates what follows, so on a network where others can alter packets use TLS.
#pragma once

#include <string>

#include "net/stream.h"

namespace baton::transport {

// An empty secret means none, and both sides must mean the same. kUnauthenticated says which side disagrees;
// kDataLoss for what isn't this protocol.
net::Task<Result<void>> authenticate_as_server(net::Stream& stream, const std::string& secret, Duration timeout);
net::Task<Result<void>> authenticate_as_client(net::Stream& stream, const std::string& secret, Duration timeout);

}  // namespace baton::transport
