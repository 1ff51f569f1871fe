// TLS over loopback with a certificate that the test signs itself.
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <filesystem>

#include "net/http_client.h"
#include "net/http_server.h"
#include "net/test_support.h"

namespace baton::net {
namespace {

// A self-signed certificate for the name `dns` and for 127.0.0.1, as PEM files.
struct Certificate {
  explicit Certificate(const std::string& dns) {
    const auto folder = std::filesystem::temp_directory_path();
    cert_file = folder / fmt::format("baton_net_{}_{}.crt", ::getpid(), dns);
    key_file = folder / fmt::format("baton_net_{}_{}.key", ::getpid(), dns);
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* cert = X509_new();
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    X509_NAME* name = X509_get_subject_name(cert);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(dns.c_str()), -1, -1,
                               0);
    X509_set_issuer_name(cert, name);
    const std::string names = "DNS:" + dns + ",IP:127.0.0.1";
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, names.c_str());
    X509_add_ext(cert, extension, -1);
    X509_EXTENSION_free(extension);
    X509_sign(cert, key, EVP_sha256());
    FILE* file = std::fopen(cert_file.c_str(), "w");
    PEM_write_X509(file, cert);
    std::fclose(file);
    file = std::fopen(key_file.c_str(), "w");
    PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
    X509_free(cert);
    EVP_PKEY_free(key);
  }
  ~Certificate() {
    std::filesystem::remove(cert_file);
    std::filesystem::remove(key_file);
  }
  std::string cert_file, key_file;
};

Task<void> echo(HttpRequest& request, HttpResponder& responder) {
  (void)co_await responder.respond({.status = 200, .headers = {}, .body = request.body});
}

class Tls : public testing::Test {
 protected:
  std::unique_ptr<HttpServer> serve(const Certificate& certificate, std::string client_ca = "") {
    HttpServerOptions options;
    options.tls = {.cert_file = certificate.cert_file, .key_file = certificate.key_file, .ca_file = client_ca};
    return serve_http(context_.executor(), options, echo).value();
  }
  Result<HttpResponse> post(int port, const std::string& host, TlsOptions tls, std::string body = "hello") {
    auto client = make_http_client(context_.executor(), {.tls = std::move(tls), .use_tls = true});
    return context_.run(
        [](HttpClient& with, int to_port, std::string to, std::string text) -> Task<Result<HttpResponse>> {
          HttpClientRequest request{
              .host = to, .port = to_port, .method = "POST", .target = "/", .headers = {}, .body = text};
          request.connect_timeout = std::chrono::seconds(2);
          co_return co_await with.request(std::move(request));
        }(*client, port, host, std::move(body)));
  }
  ContextThread context_;
};

TEST_F(Tls, RoundTripWithSmallAndLargeBodies) {
  Certificate certificate("localhost");
  auto server = serve(certificate);
  for (const std::string& host : {"127.0.0.1", "localhost"}) {
    auto response = post(server->port(), host, {.ca_file = certificate.cert_file});
    ASSERT_TRUE(response) << response.error().message();
    EXPECT_EQ(response->body, "hello");
  }
  std::string big(3'000'000, 'y');
  auto response = post(server->port(), "127.0.0.1", {.ca_file = certificate.cert_file}, big);
  ASSERT_TRUE(response) << response.error().message();
  EXPECT_EQ(response->body, big);
}

TEST_F(Tls, AnUntrustedCertificateIsRefused) {
  Certificate certificate("localhost"), other("localhost2");
  auto server = serve(certificate);
  EXPECT_FALSE(post(server->port(), "127.0.0.1", {.ca_file = other.cert_file}));
  EXPECT_FALSE(post(server->port(), "127.0.0.1", {}));
  EXPECT_TRUE(post(server->port(), "127.0.0.1", {.verify_peer = false}));
}

TEST_F(Tls, AWrongNameIsRefused) {
  Certificate certificate("elsewhere.example");
  auto server = serve(certificate);
  EXPECT_FALSE(post(server->port(), "localhost", {.ca_file = certificate.cert_file}));
  EXPECT_TRUE(post(server->port(), "127.0.0.1", {.ca_file = certificate.cert_file}));
}

TEST_F(Tls, AServerMayAskForAClientCertificate) {
  Certificate server_side("localhost"), client_side("client");
  auto server = serve(server_side, client_side.cert_file);
  EXPECT_FALSE(post(server->port(), "127.0.0.1", {.ca_file = server_side.cert_file}));
  auto response =
      post(server->port(), "127.0.0.1",
           {.cert_file = client_side.cert_file, .key_file = client_side.key_file, .ca_file = server_side.cert_file});
  ASSERT_TRUE(response) << response.error().message();
}

TEST_F(Tls, ClientsThatStallInTheHandshakeDoNotHoldUpOthers) {
  Certificate certificate("localhost");
  auto server = serve(certificate);
  RawClient silent(server->port()), garbage(server->port());
  garbage.send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(post(server->port(), "127.0.0.1", {.ca_file = certificate.cert_file}));
}

TEST_F(Tls, BadFilesAreNamed) {
  HttpServerOptions options;
  options.tls = {.cert_file = "/nonexistent.crt"};
  auto server = serve_http(context_.executor(), options, echo);
  ASSERT_FALSE(server);
  EXPECT_NE(server.error().message().find("/nonexistent.crt"), std::string::npos);
  const auto client = check_client_tls({.ca_file = "/nonexistent.ca"});
  ASSERT_FALSE(client);
  EXPECT_NE(client.error().message().find("/nonexistent.ca"), std::string::npos);
  const Certificate good("localhost");
  EXPECT_TRUE(check_client_tls({.cert_file = good.cert_file, .key_file = good.key_file, .ca_file = good.cert_file}));
}

}  // namespace
}  // namespace baton::net
