// Moving the blocks of a pull: slices copied from a mapped arena, or reads over TCP.
#include <algorithm>

#include "transfer/consumer_fsm.h"

namespace baton::transfer {
namespace {

constexpr size_t kReadsAhead = 2;

}  // namespace

int64_t ConsumerFsm::blocks_per_slice() const {
  return std::max<int64_t>(1, options_.slice_bytes / std::max<int64_t>(1, options_.block_bytes));
}

int32_t ConsumerFsm::block_tokens(const PullState& pull, uint32_t block) const {
  return static_cast<int32_t>(std::min<int64_t>(block_size(), pull.offer.token_count - int64_t{block} * block_size()));
}

void ConsumerFsm::move_on(PullId id, TimePoint now) {
  PullState& pull = pulls_.at(id);
  if (pull.ending) return finish(id, fail(*pull.ending), now);
  if (pull.verified >= pull.end_block) return finish(id, {}, now);
  pull.wake = now + options_.reply_timeout;
  Peer& peer = peers_.at(pull.peer);
  if (peer.state != PeerState::kReady || peer.connection != pull.connection) {
    retry(id, Status(Code::kUnavailable, fmt::format("lost the prefill engine at {}:{}", peer.host, peer.port)), now);
    return pump(peer, now);
  }
  if (peer.mapped) {
    copy_slice(id, pull);
  } else {
    read_slices(pull);
  }
}

void ConsumerFsm::copy_slice(PullId id, PullState& pull) {
  CopyBlocks copy{.pull = id, .connection = peers_.at(pull.peer).connection};
  const auto end = std::min<int64_t>(pull.end_block, pull.verified + blocks_per_slice());
  for (uint32_t b = pull.verified; b < end; ++b) {
    copy.blocks.push_back({.from = pull.offer.blocks[b],
                           .to = pull.pull.blocks[b].value,
                           .tokens = block_tokens(pull, b),
                           .generation = pull.offer.generations[b]});
  }
  pull.copying = true;
  actions_.push_back(std::move(copy));
}

void ConsumerFsm::on_copied(PullId id, size_t good_blocks, const Result<void>& outcome, TimePoint now) {
  const auto it = pulls_.find(id);
  if (it == pulls_.end() || !it->second.copying) return;
  PullState& pull = it->second;
  pull.copying = false;
  for (size_t i = 0; i < good_blocks && pull.verified < pull.end_block; ++i, ++pull.verified) {
    pull.bytes += options_.block_bytes / block_size() * block_tokens(pull, pull.verified);
  }
  if (pull.ending) return finish(id, fail(*pull.ending), now);
  if (outcome) return move_on(id, now);
  if (outcome.error().code() == Code::kFailedPrecondition) return finish(id, fail(outcome.error()), now);
  retry(id, outcome.error(), now);
  if (const auto still = pulls_.find(id); still != pulls_.end()) pump(peers_.at(still->second.peer), now);
}

void ConsumerFsm::read_slices(PullState& pull) {
  const Peer& peer = peers_.at(pull.peer);
  while (pull.reads.size() < kReadsAhead && pull.requested < pull.end_block) {
    const auto count = static_cast<uint32_t>(std::min<int64_t>(pull.end_block - pull.requested, blocks_per_slice()));
    const uint64_t call = next_call_++;
    send(peer, wire::ReadBlocks{call, pull.offer.offer_id, pull.requested, count});
    pull.requested += count;
    pull.reads.push_back({call, pull.requested});
  }
}

std::optional<DataTarget> ConsumerFsm::on_block_data(ConnectionId connection, const wire::BlockData& data,
                                                     int64_t payload_bytes, TimePoint now) {
  Peer* peer = by_connection(connection);
  if (peer == nullptr) return std::nullopt;
  peer->heard = now;
  const PullId id = pull_by_call(*peer, data.call);
  if (id == 0) return std::nullopt;
  PullState& pull = pulls_.at(id);
  if (pull.stage != Stage::kMoving || pull.copying || pull.reads.empty()) return std::nullopt;
  const bool seen = data.block < pull.verified || (data.block == pull.verified && data.first_layer < pull.layers);
  if (seen) return std::nullopt;

  const auto& layout = options_.identity.layout;
  const auto layers = static_cast<uint32_t>(layout.layers);
  const auto broken = [&](Code code, std::string why) -> std::optional<DataTarget> {
    retry(id, Status(code, std::move(why)), now);
    return std::nullopt;
  };
  if (data.call != pull.reads.front().call || data.block != pull.verified || data.first_layer != pull.layers ||
      data.layer_count == 0 || data.layer_count > layers - data.first_layer) {
    return broken(Code::kDataLoss, fmt::format("block {} layer {} arrived in place of block {} layer {}", data.block,
                                               data.first_layer, pull.verified, pull.layers));
  }
  if (data.generation != pull.offer.generations[data.block]) {
    finish(id,
           fail(Code::kUnavailable, "block {} has generation {}, {} was offered: the lease ended", data.block,
                data.generation, pull.offer.generations[data.block]),
           now);
    return std::nullopt;
  }
  const auto tokens = block_tokens(pull, data.block);
  const int64_t bytes = options_.block_bytes / layers / block_size() * tokens * data.layer_count;
  const uint64_t units = uint64_t{data.layer_count} * static_cast<uint64_t>(layout.kv_heads);
  if (data.tokens != static_cast<uint32_t>(tokens) || payload_bytes != bytes || data.checksums.size() != units) {
    return broken(Code::kDataLoss,
                  fmt::format("block {} came with {} tokens, {} bytes, {} checksums, not {}, {}, {}", data.block,
                              data.tokens, payload_bytes, data.checksums.size(), tokens, bytes, units));
  }
  return DataTarget{id, pull.pull.blocks[data.block].value};
}

void ConsumerFsm::on_stored(PullId id, const wire::BlockData& data, int64_t payload_bytes, const Result<void>& outcome,
                            TimePoint now) {
  const auto it = pulls_.find(id);
  if (it == pulls_.end()) return;
  PullState& pull = it->second;
  if (!outcome) {
    retry(id, outcome.error(), now);
    if (const auto still = pulls_.find(id); still != pulls_.end()) pump(peers_.at(still->second.peer), now);
    return;
  }
  pull.bytes += payload_bytes;
  pull.layers += data.layer_count;
  pull.wake = now + options_.reply_timeout;
  if (pull.layers < static_cast<uint32_t>(options_.identity.layout.layers)) return;
  pull.layers = 0;
  ++pull.verified;
  if (pull.verified == pull.reads.front().end_block) pull.reads.pop_front();
  move_on(id, now);
}

}  // namespace baton::transfer
