// Sockets as Streams: plain (TCP or Unix) and TLS. Inner header of net: included by connect.cc and listen.cc alone.
//
// A socket is non-blocking and its stream lives on one executor. Deadlines cost no timer per operation: an operation
// only notes its deadline, and one timer per stream, armed when a deadline is nearer than what it is armed for, looks
// at both directions when it fires.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <memory>

#include "net/stream.h"
#include "net/tls_context.h"

namespace baton::net {

using Socket = asio::generic::stream_protocol::socket;

std::unique_ptr<Stream> make_socket_stream(Socket socket, std::string peer);
// Shakes hands within `timeout`. As a client: sends `server_name` (SNI) and checks it when the context verifies.
Task<Result<std::unique_ptr<Stream>>> make_tls_stream(Socket socket, std::string peer, TlsContext context, bool client,
                                                      std::string server_name, Duration timeout);
// "127.0.0.1:80" of the far end.
std::string peer_name(const Socket& socket);

// connect() with a context made once, for those who connect often. `context` null: plain.
Task<Result<std::unique_ptr<Stream>>> connect_with(ConnectOptions options, TlsContext context);

}  // namespace baton::net
