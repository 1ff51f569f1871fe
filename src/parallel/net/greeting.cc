#include "parallel/net/greeting.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>
#include <vector>

#include "base/byte_codec.h"

namespace baton::parallel {
namespace {

constexpr uint32_t kMagic = 0x4d4d5442;  // "BTMM"
constexpr uint16_t kVersion = 1;
constexpr size_t kNonceBytes = 32, kProofBytes = 32;
constexpr size_t kOpeningBytes = 4 + 2 + 2 + 1 + kNonceBytes;
constexpr size_t kAnswerBytes = kOpeningBytes + kProofBytes;
constexpr size_t kVerdictBytes = 1 + kProofBytes;

std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string proof(const GreetingKey& key, std::string_view role, std::string_view host_nonce,
                  std::string_view guest_nonce) {
  const std::string whole_key = key.secret + key.cookie;
  ByteWriter text;
  text.put_string("baton mesh");
  text.put_string(role);
  text.put(key.place);
  text.put_bytes(as_bytes(host_nonce));
  text.put_bytes(as_bytes(guest_nonce));
  std::string mac(kProofBytes, '\0');
  unsigned int size = kProofBytes;
  HMAC(EVP_sha256(), whole_key.data(), static_cast<int>(whole_key.size()),
       reinterpret_cast<const unsigned char*>(text.view().data()), text.size(),
       reinterpret_cast<unsigned char*>(mac.data()), &size);
  return mac;
}

bool equal(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void put_opening(ByteWriter& writer, const GreetingKey& key, std::string_view nonce) {
  writer.put(kMagic);
  writer.put(kVersion);
  writer.put(key.place);
  writer.put(static_cast<uint8_t>(!key.secret.empty()));
  writer.put_bytes(as_bytes(nonce));
}

std::string get_text(ByteReader& reader, size_t bytes) {
  const auto taken = reader.get_bytes(bytes);
  return {reinterpret_cast<const char*>(taken.data()), taken.size()};
}

// The other's nonce, once its opening is one that we can speak with.
Result<std::string> get_opening(ByteReader& reader, const GreetingKey& key, const std::string& peer) {
  if (reader.get<uint32_t>() != kMagic) return fail(Code::kDataLoss, "{} is no member of a Baton engine", peer);
  if (const auto version = reader.get<uint16_t>(); version != kVersion) {
    return fail(Code::kMismatch, "{} speaks version {} of the meeting, we {}: run the same Baton everywhere", peer,
                version, kVersion);
  }
  if (reader.get<GreetingPlace>() != key.place) {
    return fail(Code::kMismatch, "{} is not where it was looked for: another engine's port?", peer);
  }
  if (const bool theirs = reader.get<uint8_t>() != 0; theirs != !key.secret.empty()) {
    return fail(Code::kUnauthenticated, "secret: {} has {}, we have {}", peer, theirs ? "one" : "none",
                theirs ? "none" : "one");
  }
  return get_text(reader, kNonceBytes);
}

net::Task<Result<void>> send(net::Stream& stream, const ByteWriter& message, Duration timeout) {
  const std::span<const std::byte> piece = message.view();
  co_return co_await stream.write({&piece, 1}, timeout);
}

Status wrong_key(const GreetingKey& key, const std::string& peer) {
  if (key.place == GreetingPlace::kDesk) {
    return Status(Code::kUnauthenticated, fmt::format("secret: ours is not that of {}", peer));
  }
  return Status(Code::kUnauthenticated, fmt::format("{} is of another group", peer));
}

}  // namespace

Result<std::string> random_bytes(size_t bytes) {
  std::string made(bytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(made.data()), static_cast<int>(bytes)) != 1) {
    return fail(Code::kInternal, "no random bytes for a meeting");
  }
  return made;
}

net::Task<Result<void>> greet_as_host(net::Stream& stream, const GreetingKey& key, Duration timeout) {
  const std::string peer = stream.peer();
  BATON_CO_TRY_ASSIGN(const std::string ours, random_bytes(kNonceBytes));
  ByteWriter opening;
  put_opening(opening, key, ours);
  BATON_CO_TRY(co_await send(stream, opening, timeout));
  std::array<std::byte, kAnswerBytes> answer;
  BATON_CO_TRY(co_await net::read_exactly(stream, answer, timeout));
  ByteReader reader(answer);
  BATON_CO_TRY_ASSIGN(const std::string theirs, get_opening(reader, key, peer));
  const bool good = equal(get_text(reader, kProofBytes), proof(key, "guest", ours, theirs));
  ByteWriter verdict;
  verdict.put(static_cast<uint8_t>(good));
  verdict.put_bytes(as_bytes(good ? proof(key, "host", ours, theirs) : std::string(kProofBytes, '\0')));
  BATON_CO_TRY(co_await send(stream, verdict, timeout));
  if (!good) co_return fail(wrong_key(key, peer));
  co_return Result<void>{};
}

net::Task<Result<void>> greet_as_guest(net::Stream& stream, const GreetingKey& key, Duration timeout) {
  const std::string peer = stream.peer();
  std::array<std::byte, kOpeningBytes> opening;
  BATON_CO_TRY(co_await net::read_exactly(stream, opening, timeout));
  ByteReader reader(opening);
  BATON_CO_TRY_ASSIGN(const std::string theirs, get_opening(reader, key, peer));
  BATON_CO_TRY_ASSIGN(const std::string ours, random_bytes(kNonceBytes));
  ByteWriter answer;
  put_opening(answer, key, ours);
  answer.put_bytes(as_bytes(proof(key, "guest", theirs, ours)));
  BATON_CO_TRY(co_await send(stream, answer, timeout));
  std::array<std::byte, kVerdictBytes> verdict;
  BATON_CO_TRY(co_await net::read_exactly(stream, verdict, timeout));
  ByteReader verdict_reader(verdict);
  const bool accepted = verdict_reader.get<uint8_t>() == 1;
  if (!accepted || !equal(get_text(verdict_reader, kProofBytes), proof(key, "host", theirs, ours))) {
    co_return fail(wrong_key(key, peer));
  }
  co_return Result<void>{};
}

}  // namespace baton::parallel
