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

void put_blocks(ByteWriter& writer, const std::vector<BlockId>& ids) {
  std::vector<int32_t> blocks;
  for (const auto block : ids) blocks.push_back(block.value);
  writer.put_array(std::span<const int32_t>(blocks));
}

std::vector<BlockId> get_blocks(ByteReader& reader) {
  std::vector<BlockId> blocks;
  for (const auto block : reader.get_array<int32_t>()) blocks.emplace_back(block);
  return blocks;
}

void put_digest(ByteWriter& writer, const wire::PromptDigest& digest) {
  writer.put_bytes(std::as_bytes(std::span(&digest, 1)));
}

wire::PromptDigest get_digest(ByteReader& reader) {
  wire::PromptDigest digest{};
  const auto bytes = reader.get_bytes(sizeof(digest));
  if (!bytes.empty()) std::memcpy(&digest, bytes.data(), sizeof(digest));
  return digest;
}

Result<void> check_blocks(const std::vector<BlockId>& blocks, int64_t count, const char* what) {
  for (const auto block : blocks) {
    if (block.value < 0 || block.value >= count) return fail(Code::kDataLoss, "{} of block {}", what, block.value);
  }
  return {};
}

}  // namespace

std::vector<std::byte> encode_push(const transfer::PushStep& step) {
  ByteWriter writer;
  writer.put(step.step);
  writer.put_string(step.request_id);
  writer.put(step.push_id);
  writer.put_string(step.host);
  writer.put(int32_t{step.port});
  writer.put(step.grant_id);
  writer.put(step.token_count);
  put_digest(writer, step.prompt);
  writer.put(static_cast<uint8_t>(step.has_state));
  writer.put(step.begin_token);
  writer.put(step.end_token);
  put_blocks(writer, step.blocks);
  writer.put_string(step.ticket);
  return writer.take();
}

Result<transfer::PushStep> decode_push(std::span<const std::byte> body) {
  ByteReader reader(body);
  transfer::PushStep step;
  step.step = reader.get<uint64_t>();
  step.request_id = reader.get_string();
  step.push_id = reader.get<uint64_t>();
  step.host = reader.get_string();
  step.port = reader.get<int32_t>();
  step.grant_id = reader.get<uint64_t>();
  step.token_count = reader.get<int64_t>();
  step.prompt = get_digest(reader);
  step.has_state = reader.get<uint8_t>() != 0;
  step.begin_token = reader.get<int64_t>();
  step.end_token = reader.get<int64_t>();
  step.blocks = get_blocks(reader);
  step.ticket = reader.get_string();
  BATON_TRY(reader.finish("a push"));
  return step;
}

std::vector<std::byte> encode_offer(const transfer::Offer& offer) {
  ByteWriter writer;
  writer.put_string(offer.request_id);
  put_blocks(writer, offer.blocks);
  writer.put(offer.token_count);
  writer.put(offer.last_token_id);
  put_digest(writer, offer.prompt);
  writer.put(offer.state_slot.value_or(-1));
  writer.put(offer.offer_id);
  return writer.take();
}

Result<transfer::Offer> decode_offer(std::span<const std::byte> body) {
  ByteReader reader(body);
  transfer::Offer offer;
  offer.request_id = reader.get_string();
  offer.blocks = get_blocks(reader);
  offer.token_count = reader.get<int64_t>();
  offer.last_token_id = reader.get<int32_t>();
  offer.prompt = get_digest(reader);
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

Result<void> MemberOffers::push(std::span<const std::byte> body, const Limits& limits) {
  BATON_TRY_ASSIGN(auto step, decode_push(body));
  if (producer_ == nullptr || !producer_->pushes()) {
    return fail(Code::kFailedPrecondition,
                "the leading process pushes KV, this one can't: give all the same --kv-transfer-config");
  }
  BATON_TRY(check_blocks(step.blocks, limits.blocks, "a push"));
  const int64_t tokens = limits.block_tokens;
  const bool fits = step.push_id != 0 && step.begin_token >= 0 && step.begin_token < step.end_token &&
                    step.end_token <= step.token_count && step.token_count <= limits.max_model_len &&
                    std::ssize(step.blocks) == (step.end_token + tokens - 1) / tokens - step.begin_token / tokens;
  if (!fits) {
    return fail(Code::kDataLoss, "a push of tokens {} to {} of {} in {} blocks", step.begin_token, step.end_token,
                step.token_count, step.blocks.size());
  }
  held_.insert(step.ticket);
  producer_->plan_push(std::move(step));
  return {};
}

Result<void> MemberOffers::offer(std::span<const std::byte> body, const Limits& limits) {
  BATON_TRY_ASSIGN(auto offer, decode_offer(body));
  if (producer_ == nullptr) {
    return fail(Code::kFailedPrecondition,
                "the leading process offers KV, this one can't: give all the same --kv-transfer-config");
  }
  BATON_TRY(check_blocks(offer.blocks, limits.blocks, "an offer"));
  if (offer.state_slot && *offer.state_slot >= limits.slots) {
    return fail(Code::kDataLoss, "an offer of slot {}", *offer.state_slot);
  }
  held_.insert(offer.request_id);
  (void)producer_->offer(std::move(offer));
  return {};
}

Result<void> MemberOffers::revoke(std::span<const std::byte> body) {
  BATON_TRY_ASSIGN(const auto id, decode_id(body));
  // A push may be given up before anything is offered.
  if (producer_ != nullptr && (producer_->pushes() || held_.contains(id))) producer_->revoke(id);
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

void LeaderProducer::plan_push(transfer::PushStep step) {
  holders_[step.ticket] = mesh_.size();
  tell_all(command(MemberCommand::kPush, encode_push(step)));
  own_.plan_push(std::move(step));
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
