// OpenSSL contexts from TlsOptions. Used by connect, listen and the HTTP client; any thread.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>

#include "net/stream.h"

namespace baton::net {

// Shared by every stream made from it. TLS 1.2 and up. kInvalidArgument or kNotFound names the file that is wrong.
using TlsContext = std::shared_ptr<asio::ssl::context>;
Result<TlsContext> make_server_context(const TlsOptions& options);
Result<TlsContext> make_client_context(const TlsOptions& options);

}  // namespace baton::net
