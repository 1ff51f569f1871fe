// A certificate for 127.0.0.1 that the test signs itself, as PEM files in the temporary folder.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

namespace baton::transfer::testing {

struct TestCertificate {
  TestCertificate() {
    static int made = 0;
    const auto base = std::filesystem::temp_directory_path() /
                      ("baton_transfer_" + std::to_string(getpid()) + "_" + std::to_string(made++));
    cert_file = base.string() + ".crt";
    key_file = base.string() + ".key";
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* cert = X509_new();
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    X509_NAME* name = X509_get_subject_name(cert);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("baton"), -1, -1, 0);
    X509_set_issuer_name(cert, name);
    X509_EXTENSION* names = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1");
    X509_add_ext(cert, names, -1);
    X509_EXTENSION_free(names);
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
  ~TestCertificate() {
    std::filesystem::remove(cert_file);
    std::filesystem::remove(key_file);
  }
  std::string cert_file, key_file;
};

}  // namespace baton::transfer::testing
