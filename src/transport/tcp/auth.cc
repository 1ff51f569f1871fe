#include "transport/tcp/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>

#include "base/byte_codec.h"

namespace baton::transport {
namespace {

constexpr uint32_t kMagic = 0x55415442;  // "BTAU"
constexpr uint16_t kVersion = 1;
constexpr size_t kOpeningBytes = 40, kProofBytes = 64, kVerdictBytes = 36;

using Bytes32 = std::array<std::byte, 32>;

Result<Bytes32> fresh_nonce() {
  Bytes32 nonce;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), nonce.size()) != 1) {
    return fail(Code::kInternal, "no random bytes for the hand-off's nonce");
  }
  return nonce;
}

Bytes32 proof(std::string_view role, const std::string& secret, std::span<const std::byte> server_nonce,
              std::span<const std::byte> client_nonce) {
  ByteWriter text;
  text.put_bytes(std::as_bytes(std::span(role)));
  text.put_bytes(server_nonce);
  text.put_bytes(client_nonce);
  Bytes32 mac{};
  unsigned int size = mac.size();
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(text.view().data()), text.size(),
       reinterpret_cast<unsigned char*>(mac.data()), &size);
  return mac;
}
constexpr std::string_view kRoleD = "baton hand-off D";
constexpr std::string_view kRoleP = "baton hand-off P";

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

net::Task<Result<void>> send(net::Stream& stream, const ByteWriter& message, Duration timeout) {
  const std::span<const std::byte> piece = message.view();
  co_return co_await stream.write({&piece, 1}, timeout);
}

}  // namespace

net::Task<Result<void>> authenticate_as_server(net::Stream& stream, const std::string& secret, Duration timeout) {
  BATON_CO_TRY_ASSIGN(const Bytes32 ours, fresh_nonce());
  ByteWriter opening;
  opening.put(kMagic);
  opening.put(kVersion);
  opening.put(static_cast<uint16_t>(!secret.empty()));
  opening.put_bytes(ours);
  BATON_CO_TRY(co_await send(stream, opening, timeout));
  if (secret.empty()) co_return Result<void>{};

  std::array<std::byte, kProofBytes> answer;
  BATON_CO_TRY(co_await net::read_exactly(stream, answer, timeout));
  const auto theirs = std::span(answer).first(32);
  const bool good = equal(std::span(answer).last(32), proof(kRoleD, secret, ours, theirs));
  ByteWriter verdict;
  verdict.put(static_cast<uint32_t>(good));
  verdict.put_bytes(good ? proof(kRoleP, secret, ours, theirs) : Bytes32{});
  BATON_CO_TRY(co_await send(stream, verdict, timeout));
  if (!good) co_return fail(Code::kUnauthenticated, "{} does not know the hand-off secret", stream.peer());
  co_return Result<void>{};
}

net::Task<Result<void>> authenticate_as_client(net::Stream& stream, const std::string& secret, Duration timeout) {
  std::array<std::byte, kOpeningBytes> opening;
  BATON_CO_TRY(co_await net::read_exactly(stream, opening, timeout));
  ByteReader reader(opening);
  if (reader.get<uint32_t>() != kMagic || reader.get<uint16_t>() != kVersion) {
    co_return fail(Code::kDataLoss, "{} does not speak the hand-off protocol", stream.peer());
  }
  const bool asked = reader.get<uint16_t>() != 0;
  if (asked != !secret.empty()) {
    co_return fail(Code::kUnauthenticated, "hand-off secret: {} {}, we {}", stream.peer(),
                   asked ? "asks for one" : "asks for none", asked ? "have none" : "have one");
  }
  if (!asked) co_return Result<void>{};

  const auto theirs = std::span(opening).last(32);
  BATON_CO_TRY_ASSIGN(const Bytes32 ours, fresh_nonce());
  ByteWriter answer;
  answer.put_bytes(ours);
  answer.put_bytes(proof(kRoleD, secret, theirs, ours));
  BATON_CO_TRY(co_await send(stream, answer, timeout));
  std::array<std::byte, kVerdictBytes> verdict;
  BATON_CO_TRY(co_await net::read_exactly(stream, verdict, timeout));
  ByteReader verdict_reader(verdict);
  const bool accepted = verdict_reader.get<uint32_t>() == 1;
  if (!accepted || !equal(std::span(verdict).last(32), proof(kRoleP, secret, theirs, ours))) {
    co_return fail(Code::kUnauthenticated, "hand-off secret: ours is not that of {}", stream.peer());
  }
  co_return Result<void>{};
}

}  // namespace baton::transport
