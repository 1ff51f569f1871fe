// Moving the blocks of a pull: slices copied from a mapped arena, or reads over TCP.
#include <algorithm>

#include "transfer/consumer_fsm.h"

namespace baton::transfer {

const kv::PagedGeometry& ConsumerFsm::geometry_of(bool state) const {
  return state ? options_.layout.states : options_.layout.blocks;
}

CopyBlock ConsumerFsm::item(const PullState& pull, uint32_t index) const {
  if (index == pull.block_count) {
    return {.from = pull.offer.state_slot,
            .to = *pull.pull.state_slot,
            .tokens = 1,
            .generation = pull.offer.state_generation,
            .state = true};
  }
  const auto tokens = std::min<int64_t>(block_size(), pull.offer.token_count - int64_t{index} * block_size());
  return {.from = pull.offer.blocks[index],
          .to = pull.pull.blocks[index].value,
          .tokens = static_cast<int32_t>(tokens),
          .generation = pull.offer.generations[index]};
}

// Items from `first` on that make a slice; the state, which may be large, is one of its own.
uint32_t ConsumerFsm::slice_end(const PullState& pull, uint32_t first) const {
  if (first >= pull.block_count) return pull.end_item;
  const int64_t count = std::max<int64_t>(1, options_.slice_bytes / options_.layout.blocks.block_bytes());
  return static_cast<uint32_t>(std::min<int64_t>(pull.block_count, first + count));
}

void ConsumerFsm::move_on(PullId id, TimePoint now) {
  PullState& pull = pulls_.at(id);
  if (pull.ending) return finish(id, fail(*pull.ending), now);
  if (pull.verified >= pull.end_item) return finish(id, {}, now);
  pull.wake = now + options_.reply_timeout;
  Peer& peer = peers_.at(pull.peer);
  if (peer.state != PeerState::kReady || peer.connection != pull.connection) {
    retry(id, Status(Code::kUnavailable, fmt::format("lost the prefill engine at {}:{}", peer.host, peer.port)), now);
    return pump(peer, now);
  }
  if (peer.mapped) {
    copy_slice(id, pull);
  } else {
    want_reads(id, pull, now);
  }
}

void ConsumerFsm::copy_slice(PullId id, PullState& pull) {
  CopyBlocks copy{.pull = id, .connection = peers_.at(pull.peer).connection};
  const auto end = slice_end(pull, pull.verified);
  for (uint32_t i = pull.verified; i < end; ++i) copy.blocks.push_back(item(pull, i));
  pull.copying = true;
  actions_.push_back(std::move(copy));
}

void ConsumerFsm::on_copied(PullId id, size_t good_blocks, const Result<void>& outcome, TimePoint now) {
  const auto it = pulls_.find(id);
  if (it == pulls_.end() || !it->second.copying) return;
  PullState& pull = it->second;
  pull.copying = false;
  for (size_t i = 0; i < good_blocks && pull.verified < pull.end_item; ++i, ++pull.verified) {
    const auto stored = item(pull, pull.verified);
    pull.bytes += geometry_of(stored.state).sealed_bytes(stored.tokens);
  }
  if (pull.ending) return finish(id, fail(*pull.ending), now);
  if (outcome) return move_on(id, now);
  if (outcome.error().code() == Code::kFailedPrecondition) return finish(id, fail(outcome.error()), now);
  retry(id, outcome.error(), now);
  if (const auto still = pulls_.find(id); still != pulls_.end()) pump(peers_.at(still->second.peer), now);
}

std::optional<DataTarget> ConsumerFsm::on_block_data(ConnectionId connection, const wire::BlockData& data,
                                                     int64_t payload_bytes, TimePoint now) {
  Peer* peer = by_connection(connection);
  if (peer == nullptr) return std::nullopt;
  peer->heard = now;
  peer->answer_due.reset();
  note_frame(*peer, data, now);
  const PullId id = pull_by_call(*peer, data.call);
  if (id == 0) return std::nullopt;
  PullState& pull = pulls_.at(id);
  if (pull.stage != Stage::kMoving || pull.copying || pull.reads.empty()) return std::nullopt;
  const bool seen = data.block < pull.verified || (data.block == pull.verified && data.first_entry < pull.entries);
  if (seen) return std::nullopt;

  const auto broken = [&](Code code, std::string why) -> std::optional<DataTarget> {
    retry(id, Status(code, std::move(why)), now);
    return std::nullopt;
  };
  const auto wanted = item(pull, pull.verified);
  const auto& geometry = geometry_of(wanted.state);
  const auto entry_count = static_cast<uint32_t>(geometry.entry_count());
  if (data.call != pull.reads.front().call || data.block != pull.verified || data.first_entry != pull.entries ||
      data.entry_count == 0 || data.entry_count > entry_count - data.first_entry) {
    return broken(Code::kDataLoss, fmt::format("block {} entry {} arrived in place of block {} entry {}", data.block,
                                               data.first_entry, pull.verified, pull.entries));
  }
  if (data.generation != wanted.generation) {
    finish(id,
           fail(Code::kUnavailable, "block {} has generation {}, {} was offered: the lease ended", data.block,
                data.generation, wanted.generation),
           now);
    return std::nullopt;
  }
  const kv::EntryRange entries{static_cast<int>(data.first_entry), static_cast<int>(data.entry_count)};
  const int64_t bytes = geometry.sealed_bytes(wanted.tokens, entries);
  const auto units = static_cast<size_t>(geometry.unit_count(entries));
  if (data.tokens != static_cast<uint32_t>(wanted.tokens) || payload_bytes != bytes || data.checksums.size() != units) {
    return broken(Code::kDataLoss,
                  fmt::format("block {} came with {} tokens, {} bytes, {} checksums, not {}, {}, {}", data.block,
                              data.tokens, payload_bytes, data.checksums.size(), wanted.tokens, bytes, units));
  }
  return DataTarget{id, wanted.to, wanted.state};
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
  pull.entries += data.entry_count;
  pull.wake = now + options_.reply_timeout;
  const bool state = pull.verified == pull.block_count;
  if (pull.entries < static_cast<uint32_t>(geometry_of(state).entry_count())) return;
  pull.entries = 0;
  ++pull.verified;
  if (pull.verified == pull.reads.front().end_item) pull.reads.pop_front();
  move_on(id, now);
}

}  // namespace baton::transfer
