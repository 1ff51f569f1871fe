#include "transfer/producer_fsm.h"

#include <algorithm>

#include "base/check.h"
#include "transfer/reshard_plan.h"

namespace baton::transfer {
namespace {

constexpr size_t kWaitingQueriesMax = 16;
constexpr size_t kEndedEarlyMax = 1024;

// Spans of ranks and states that we hold.
Result<void> check_ranks(const wire::ReadBlocks& read, const Holdings& holdings) {
  for (const auto& rank : read.ranks) {
    const bool here = rank.rank < holdings.ranks.size();
    const bool fits = here && std::ranges::all_of(rank.spans, [&](const wire::UnitSpan& span) {
                        return span_fits(holdings.geometry(static_cast<int>(rank.rank), rank.state), span);
                      });
    if (!fits || rank.spans.empty()) {
      return fail(Code::kOutOfRange, "{} spans of rank {} of {}, which doesn't hold them", rank.spans.size(), rank.rank,
                  holdings.ranks.size());
    }
  }
  return {};
}

}  // namespace

void ProducerFsm::offer(uint64_t id, Offer offer, TimePoint now) {
  if (offers_.size() >= options_.offers_max) {
    actions_.push_back(Release{std::move(offer.request_id), EndReason::kRevoked});
    return;
  }
  const int64_t block_tokens = options_.holdings->block_tokens();
  LiveOffer live;
  live.request_id = std::move(offer.request_id);
  live.token_count = offer.token_count;
  live.prompt = offer.prompt;
  live.expires = now + options_.lease;
  const int64_t used = options_.holdings->blocks_for(offer.token_count);
  for (int64_t i = 0; i < used; ++i) {
    const auto tokens = std::min(block_tokens, offer.token_count - i * block_tokens);
    const int32_t block = offer.blocks[static_cast<size_t>(i)].value;
    live.blocks.push_back({.block = block, .tokens = static_cast<int32_t>(tokens)});
    ++block_holders_[block];
  }
  if (offer.state_slot) live.blocks.push_back({.block = *offer.state_slot, .tokens = 1, .state = true});
  actions_.push_back(SealBlocks{id, live.blocks});
  const bool inserted = offers_.emplace(id, std::move(live)).second;
  BATON_CHECK(inserted, "offer id {} used twice", id);
  if (std::erase(ended_early_, id) > 0) end(offers_.find(id), EndReason::kAborted);
}

void ProducerFsm::revoke(const std::string& request_id) {
  for (auto it = offers_.begin(); it != offers_.end();) {
    const auto offer = it++;
    if (offer->second.request_id == request_id) end(offer, EndReason::kRevoked);
  }
}

void ProducerFsm::on_sealed(uint64_t offer_id, const std::vector<uint64_t>& generations, TimePoint now) {
  const auto it = offers_.find(offer_id);
  BATON_CHECK(it != offers_.end() && generations.size() == it->second.blocks.size());
  LiveOffer& offer = it->second;
  offer.sealed = true;
  for (size_t i = 0; i < generations.size(); ++i) offer.blocks[i].generation = generations[i];
  if (offer.ended) return release_if_quiet(it);
  const auto waiting = std::exchange(offer.waiting, {});
  for (const Query& query : waiting) {
    if (find(offer_id, now) != nullptr) answer_query(offer_id, offer, query);
  }
}

void ProducerFsm::on_message(ConnectionId connection, const wire::Message& message, TimePoint now) {
  if (const auto* hello = std::get_if<wire::Hello>(&message)) return on(connection, *hello);
  if (!connections_.contains(connection)) {
    return close(connection, Status(Code::kFailedPrecondition, "the first message must be Hello"));
  }
  if (const auto* query = std::get_if<wire::OfferQuery>(&message)) return on(connection, *query, now);
  if (const auto* renew = std::get_if<wire::Renew>(&message)) return on(connection, *renew, now);
  if (const auto* end_offer = std::get_if<wire::EndOffer>(&message)) return on(connection, *end_offer);
  if (const auto* read = std::get_if<wire::ReadBlocks>(&message)) return on(connection, *read, now);
  close(connection,
        Status(Code::kInvalidArgument, fmt::format("{} is not for a prefill engine",
                                                   wire::message_name(static_cast<uint16_t>(message.index() + 1)))));
}

void ProducerFsm::on(ConnectionId connection, const wire::Hello& hello) {
  const auto agreed = wire::compare_identity(options_.hello.identity, hello.identity, options_.allow);
  const auto as_claimed = wire::check_claim(options_.claim, hello.identity.layout.grid, "decode engine");
  if (!agreed) return close(connection, agreed.error().with_context("prefill engine refuses the hand-off"));
  if (!as_claimed) return close(connection, as_claimed.error().with_context("prefill engine refuses the hand-off"));
  connections_.try_emplace(connection);
  send(connection, options_.hello);
}

void ProducerFsm::on(ConnectionId connection, const wire::OfferQuery& query, TimePoint now) {
  LiveOffer* offer = find_for(connection, query.offer_id, now);
  if (offer == nullptr) {
    return send_error(connection, query.call, query.offer_id, Code::kNotFound,
                      "no such offer: done, aborted or its lease has ended");
  }
  if (offer->sealed) return answer_query(query.offer_id, *offer, {connection, query.call});
  if (offer->waiting.size() >= kWaitingQueriesMax) {
    return send_error(connection, query.call, query.offer_id, Code::kResourceExhausted, "asked too often");
  }
  offer->waiting.push_back({connection, query.call});
}

void ProducerFsm::answer_query(uint64_t offer_id, const LiveOffer& offer, Query query) {
  wire::OfferReply reply{.call = query.call, .offer_id = offer_id, .token_count = offer.token_count};
  reply.prompt = offer.prompt;
  for (const BlockSeal& seal : offer.blocks) {
    if (seal.state) {
      reply.state_slot = seal.block;
      reply.state_generation = seal.generation;
      continue;
    }
    reply.blocks.push_back(seal.block);
    reply.generations.push_back(seal.generation);
  }
  send(query.connection, std::move(reply));
}

// A heartbeat keeps a live lease going for two thirds of its length from now; it never revives one.
void ProducerFsm::on(ConnectionId connection, const wire::Renew& renew, TimePoint now) {
  wire::RenewReply reply{.call = renew.call};
  for (const uint64_t id : renew.offer_ids) {
    LiveOffer* offer = find_for(connection, id, now);
    if (offer == nullptr) {
      reply.rejected.push_back(id);
    } else {
      offer->expires = std::max(offer->expires, now + options_.lease * 2 / 3);
    }
  }
  send(connection, std::move(reply));
}

void ProducerFsm::on(ConnectionId connection, const wire::EndOffer& end_offer) {
  const auto it = offers_.find(end_offer.offer_id);
  const bool known = it != offers_.end() && !it->second.ended;
  send(connection, wire::EndReply{end_offer.call, end_offer.offer_id, known});
  if (known) end(it, end_offer.done ? EndReason::kDone : EndReason::kAborted);
  // Our engine's first process may have offered what this one has not heard of yet.
  if (it != offers_.end() || options_.hello.identity.layout.grid.processes == 1) return;
  if (ended_early_.size() >= kEndedEarlyMax) ended_early_.pop_front();
  ended_early_.push_back(end_offer.offer_id);
}

void ProducerFsm::on(ConnectionId connection, const wire::ReadBlocks& read, TimePoint now) {
  LiveOffer* offer = find_for(connection, read.offer_id, now);
  if (offer == nullptr || !offer->sealed) {
    return send_error(connection, read.call, read.offer_id, Code::kNotFound,
                      "no such offer: done, aborted or its lease has ended");
  }
  SendBlocks send_blocks{connection, read.call, read.offer_id, read.ranks, {}};
  Result<void> good = check_ranks(read, *options_.holdings);
  if (good && read.parts.empty()) good = fail(Code::kOutOfRange, "a read of nothing");
  for (size_t i = 0; good && i < read.parts.size(); ++i) {
    auto part = send_part(*offer, read, read.parts[i]);
    if (part) send_blocks.parts.push_back(*part);
    if (!part) good = fail(part.error());
  }
  if (!good) return send_error(connection, read.call, read.offer_id, good.error().code(), good.error().message());
  auto& reads = connections_.at(connection).reads;
  if (reads >= options_.reads_per_connection_max) {
    return send_error(connection, read.call, read.offer_id, Code::kResourceExhausted,
                      fmt::format("{} reads are under way on this connection", reads));
  }
  ++reads;
  ++offer->sends;
  actions_.push_back(std::move(send_blocks));
}

Result<SendPart> ProducerFsm::send_part(const LiveOffer& offer, const wire::ReadBlocks& read,
                                        const wire::ReadPart& part) const {
  if (part.of >= read.ranks.size()) return fail(Code::kOutOfRange, "a part of no rank");
  const auto& rank = read.ranks[part.of];
  const bool has_state = offer.blocks.back().state;
  const size_t blocks = offer.blocks.size() - (has_state ? 1 : 0);
  if (rank.state) {
    if (!has_state || part.place != 0) return fail(Code::kOutOfRange, "the offer has no such recurrent state");
    const auto& seal = offer.blocks.back();
    return SendPart{part.of, seal.block, 1, seal.generation};
  }
  const int tokens = part.place < blocks
                         ? options_.holdings->tokens_on(static_cast<int>(rank.rank), offer.blocks[part.place].tokens)
                         : 0;
  if (tokens == 0) {
    return fail(Code::kOutOfRange, "block {} of an offer of {} has no tokens on rank {}", part.place, blocks,
                rank.rank);
  }
  const auto& seal = offer.blocks[part.place];
  return SendPart{part.of, seal.block, tokens, seal.generation};
}

void ProducerFsm::on_closed(ConnectionId connection, TimePoint now) {
  connections_.erase(connection);
  for (auto& [id, offer] : offers_) {
    if (offer.heard_on == connection) offer.expires = std::min(offer.expires, now + options_.lease / 6);
    std::erase_if(offer.waiting, [&](const Query& query) { return query.connection == connection; });
  }
}

void ProducerFsm::on_blocks_sent(ConnectionId connection, uint64_t offer_id) {
  if (const auto it = connections_.find(connection); it != connections_.end()) --it->second.reads;
  const auto it = offers_.find(offer_id);
  BATON_CHECK(it != offers_.end() && it->second.sends > 0);
  --it->second.sends;
  if (it->second.ended) release_if_quiet(it);
}

void ProducerFsm::tick(TimePoint now) {
  for (auto it = offers_.begin(); it != offers_.end();) {
    const auto offer = it++;
    if (!offer->second.ended && offer->second.expires <= now) end(offer, EndReason::kExpired);
  }
}

std::optional<TimePoint> ProducerFsm::next_deadline() const {
  std::optional<TimePoint> next;
  for (const auto& [id, offer] : offers_) {
    if (!offer.ended && (!next || offer.expires < *next)) next = offer.expires;
  }
  return next;
}

// A lease that has run out is over even if tick() has not been called yet.
ProducerFsm::LiveOffer* ProducerFsm::find(uint64_t offer_id, TimePoint now) {
  const auto it = offers_.find(offer_id);
  if (it == offers_.end() || it->second.ended) return nullptr;
  if (it->second.expires <= now) {
    end(it, EndReason::kExpired);
    return nullptr;
  }
  return &it->second;
}

ProducerFsm::LiveOffer* ProducerFsm::find_for(ConnectionId connection, uint64_t offer_id, TimePoint now) {
  LiveOffer* offer = find(offer_id, now);
  if (offer != nullptr) offer->heard_on = connection;
  return offer;
}

void ProducerFsm::end(Offers::iterator offer, EndReason reason) {
  if (offer->second.ended) return;
  offer->second.ended = reason;
  for (const Query& query : std::exchange(offer->second.waiting, {})) {
    send_error(query.connection, query.call, offer->first, Code::kNotFound, "the offer has ended");
  }
  release_if_quiet(offer);
}

void ProducerFsm::release_if_quiet(Offers::iterator it) {
  LiveOffer& offer = it->second;
  if (!offer.sealed || offer.sends > 0) return;
  ReopenBlocks reopen;
  for (const BlockSeal& seal : offer.blocks) {
    if (seal.state) {
      reopen.slots.push_back(seal.block);
      continue;
    }
    const auto holders = block_holders_.find(seal.block);
    if (--holders->second > 0) continue;
    block_holders_.erase(holders);
    reopen.blocks.push_back(seal.block);
  }
  if (!reopen.blocks.empty() || !reopen.slots.empty()) actions_.push_back(std::move(reopen));
  actions_.push_back(Release{std::move(offer.request_id), *offer.ended});
  offers_.erase(it);
}

void ProducerFsm::send(ConnectionId connection, wire::Message message) {
  actions_.push_back(SendToConnection{connection, std::move(message)});
}

void ProducerFsm::send_error(ConnectionId connection, uint64_t call, uint64_t offer_id, Code code,
                             std::string message) {
  send(connection, wire::ErrorReply{call, offer_id, code, std::move(message)});
}

void ProducerFsm::close(ConnectionId connection, Status reason) {
  send_error(connection, 0, 0, reason.code(), reason.message());
  actions_.push_back(CloseConnection{connection, std::move(reason)});
}

}  // namespace baton::transfer
