#include "net/tls_context.h"

#include <openssl/ssl.h>

namespace baton::net {
namespace {

namespace ssl = asio::ssl;

Result<void> load_own_certificate(ssl::context& context, const TlsOptions& options) {
  boost::system::error_code error;
  if (context.use_certificate_chain_file(options.cert_file, error); error)
    return fail(Code::kInvalidArgument, "TLS certificate {}: {}; give a PEM file", options.cert_file, error.message());
  const std::string& key = options.key_file.empty() ? options.cert_file : options.key_file;
  if (context.use_private_key_file(key, ssl::context::pem, error); error)
    return fail(Code::kInvalidArgument, "TLS key {}: {}; give the PEM key of {}", key, error.message(),
                options.cert_file);
  return {};
}

Result<void> load_trust(ssl::context& context, const TlsOptions& options) {
  boost::system::error_code error;
  if (options.ca_file.empty()) {
    if (context.set_default_verify_paths(error); error)
      return fail(Code::kInternal, "TLS: the system's certificates can't be loaded: {}", error.message());
  } else if (context.load_verify_file(options.ca_file, error); error) {
    return fail(Code::kInvalidArgument, "TLS CA file {}: {}; give a PEM file", options.ca_file, error.message());
  }
  return {};
}

Result<TlsContext> make_context(ssl::context::method method) {
  try {
    auto context = std::make_shared<ssl::context>(method);
    SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
    SSL_CTX_set_mode(context->native_handle(), SSL_MODE_RELEASE_BUFFERS);
    return context;
  } catch (const std::exception& error) {
    return fail(Code::kInternal, "OpenSSL: {}", error.what());
  }
}

}  // namespace

Result<TlsContext> make_server_context(const TlsOptions& options) {
  if (options.cert_file.empty()) return fail(Code::kInvalidArgument, "a TLS server needs a certificate file");
  BATON_TRY_ASSIGN(auto context, make_context(ssl::context::tls_server));
  BATON_TRY(load_own_certificate(*context, options));
  if (!options.ca_file.empty()) {
    BATON_TRY(load_trust(*context, options));
    boost::system::error_code ignored;
    context->set_verify_mode(
        options.verify_peer ? ssl::verify_peer | ssl::verify_fail_if_no_peer_cert : ssl::verify_none, ignored);
  }
  return context;
}

Result<TlsContext> make_client_context(const TlsOptions& options) {
  BATON_TRY_ASSIGN(auto context, make_context(ssl::context::tls_client));
  if (!options.cert_file.empty()) BATON_TRY(load_own_certificate(*context, options));
  boost::system::error_code ignored;
  context->set_verify_mode(options.verify_peer ? ssl::verify_peer : ssl::verify_none, ignored);
  if (options.verify_peer) BATON_TRY(load_trust(*context, options));
  return context;
}

Result<void> check_client_tls(const TlsOptions& options) {
  const auto context = make_client_context(options);
  return context ? Result<void>() : fail(context.error());
}

}  // namespace baton::net
