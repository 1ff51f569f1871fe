#include "engine/ranks/member_offers.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/byte_codec.h"
#include "base/log.h"
#include "engine/ranks/member_messages.h"

namespace baton::engine {
namespace {

std::vector<std::byte> command(MemberCommand which, std::span<const std::byte> body) {
  std::vector<std::byte> message = {static_cast<std::byte>(which)};
  message.insert(message.end(), body.begin(), body.end());
  return message;
}

std::vector<std::byte> encode_id(const std::string& id) {
  ByteWriter writer;
  writer.put_string(id);
  return writer.take();
}

Result<std::string> decode_id(std::span<const std::byte> body) {
  ByteReader reader(body);
  auto id = reader.get_string();
  BATON_TRY(reader.finish("an offer's id"));
  return id;
}

}  // namespace

std::vector<std::byte> encode_offer(const transfer::Offer& offer) {
  ByteWriter writer;
  writer.put_string(offer.request_id);
  std::vector<int32_t> blocks;
  for (const auto block : offer.blocks) blocks.push_back(block.value);
  writer.put_array(std::span<const int32_t>(blocks));
  writer.put(offer.token_count);
  writer.put(offer.last_token_id);
  writer.put_bytes(std::as_bytes(std::span(&offer.prompt, 1)));
  writer.put(offer.state_slot.value_or(-1));
  writer.put(offer.offer_id);
  return writer.take();
}

Result<transfer::Offer> decode_offer(std::span<const std::byte> body) {
  ByteReader reader(body);
  transfer::Offer offer;
  offer.request_id = reader.get_string();
  for (const auto block : reader.get_array<int32_t>()) offer.blocks.emplace_back(block);
  offer.token_count = reader.get<int64_t>();
  offer.last_token_id = reader.get<int32_t>();
  const auto digest = reader.get_bytes(sizeof(offer.prompt));
  if (!digest.empty()) std::memcpy(&offer.prompt, digest.data(), sizeof(offer.prompt));
  const auto slot = reader.get<int32_t>();
  if (slot >= 0) offer.state_slot = slot;
  offer.offer_id = reader.get<uint64_t>();
  BATON_TRY(reader.finish("an offer"));
  return offer;
}

std::string encode_address(const wire::HandoffAddress& address) {
  return fmt::format("{} {}", address.port, address.host);
}

Result<wire::HandoffAddress> decode_address(const std::string& text) {
  wire::HandoffAddress address;
  const auto space = text.find(' ');
  const auto [end, error] = std::from_chars(text.data(), text.data() + std::min(space, text.size()), address.port);
  if (error != std::errc() || space == std::string::npos) {
    return fail(Code::kDataLoss, "hand-off address {:?} of a member", text);
  }
  address.host = text.substr(space + 1);
  return address;
}

Result<void> MemberOffers::offer(std::span<const std::byte> body, int64_t blocks, int64_t slots) {
  BATON_TRY_ASSIGN(auto offer, decode_offer(body));
  if (producer_ == nullptr) {
    return fail(Code::kFailedPrecondition,
                "the leading process offers KV, this one can't: give all the same --kv-transfer-config");
  }
  for (const auto block : offer.blocks) {
    if (block.value < 0 || block.value >= blocks) return fail(Code::kDataLoss, "an offer of block {}", block.value);
  }
  if (offer.state_slot && *offer.state_slot >= slots) {
    return fail(Code::kDataLoss, "an offer of slot {}", *offer.state_slot);
  }
  held_.insert(offer.request_id);
  (void)producer_->offer(std::move(offer));
  return {};
}

Result<void> MemberOffers::revoke(std::span<const std::byte> body) {
  BATON_TRY_ASSIGN(const auto id, decode_id(body));
  if (producer_ != nullptr && held_.contains(id)) producer_->revoke(id);
  return {};
}

Result<void> MemberOffers::report_released() {
  if (producer_ == nullptr || held_.empty()) return {};
  for (const auto& id : producer_->poll_released()) {
    held_.erase(id);
    BATON_TRY(mesh_.send(0, tag(MemberTag::kReleased), encode_id(id)));
  }
  return {};
}

// The others keep their parts under the id that the leader's producer has given.
wire::KvTransferParams LeaderProducer::offer(transfer::Offer offer) {
  holders_[offer.request_id] = mesh_.size();
  auto params = own_.offer(offer);
  offer.offer_id = params.baton_offer_id;
  tell_all(command(MemberCommand::kOffer, encode_offer(offer)));
  return params;
}

void LeaderProducer::revoke(const std::string& request_id) {
  tell_all(command(MemberCommand::kRevoke, encode_id(request_id)));
  own_.revoke(request_id);
}

std::vector<std::string> LeaderProducer::poll_released() {
  std::vector<std::string> free;
  for (const auto& id : own_.poll_released()) let_go(id, free);
  if (holders_.empty()) return free;
  for (int member = 1; member < mesh_.size(); ++member) {
    while (const auto message = mesh_.receive(member, tag(MemberTag::kReleased), Duration::zero())) {
      if (const auto id = decode_id(message->span())) let_go(*id, free);
    }
  }
  return free;
}

void LeaderProducer::let_go(const std::string& id, std::vector<std::string>& free) {
  const auto found = holders_.find(id);
  if (found == holders_.end() || --found->second > 0) return;
  holders_.erase(found);
  free.push_back(id);
}

// A member that is lost ends the engine, which sees it at its next step.
void LeaderProducer::tell_all(std::span<const std::byte> message) {
  for (int member = 1; member < mesh_.size(); ++member) {
    const auto sent = mesh_.send(member, tag(MemberTag::kControl), message);
    if (!sent) return log_warning("member={} offer_lost={:?}", member, sent.error().message());
  }
}

}  // namespace baton::engine
