#include "transfer/live_grants.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "transfer/pull_options.h"

namespace baton::transfer {
namespace {

// The id that the client's proxy knows: without the engine's own ends (the choice, and the number of the transfer).
std::string external_id(const std::string& transfer_id) {
  const std::string engine_id = transfer_id.substr(0, transfer_id.rfind('-'));
  return engine_id.starts_with("chatcmpl-") ? engine_id.substr(0, engine_id.rfind('-')) : engine_id;
}

std::unexpected<Status> no_such_grant() {
  return fail(Code::kNotFound, "no such grant: over, cancelled, or another's");
}

}  // namespace

LiveGrants::Metrics::Metrics(MetricRegistry* registry) {
  if (registry == nullptr) return;
  transfer_seconds =
      registry->histogram("vllm:mooncake_xfer_time_seconds", "Time of a KV transfer, from start to verified.",
                          {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120});
  bytes = registry->histogram("vllm:mooncake_bytes_transferred", "Bytes of a KV transfer.",
                              {1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11});
  failed = registry->counter("vllm:mooncake_num_failed_transfers", "KV transfers that failed.");
  checksum_failures = registry->counter("baton_handoff_checksum_failures_total",
                                        "KV blocks or frames whose checksum failed; none was used.");
  received_bytes =
      registry->counter("baton_handoff_received_bytes_total", "Verified KV bytes received.", {{"transport", "push"}});
}

LiveGrants::LiveGrants(const PullConnectorOptions& options, std::shared_ptr<const Holdings> holdings,
                       std::span<std::byte> arena, LayerwiseTimeouts timeouts, Hooks hooks)
    : options_(options),
      holdings_(std::move(holdings)),
      arena_(arena),
      timeouts_(timeouts),
      hooks_(std::move(hooks)),
      plans_(holdings_, PlanCache::Side::kTakes),
      metrics_(options.metrics) {}

void LiveGrants::begin(Pull pull, int port) {
  if (pull.params.metaserver.empty() || names_.contains(pull.request_id)) {
    return finish({.request_id = pull.request_id,
                   .valid_tokens = std::min(pull.skip_tokens, pull.token_count),
                   .outcome = fail(Code::kInvalidArgument,
                                   "kv_transfer_params need `metaserver`: the layerwise connector goes with a proxy in "
                                   "layerwise mode")});
  }
  uint64_t id = random_id();
  while (grants_.contains(id)) id = random_id();
  pull.params.baton_offer_id = id;
  names_[pull.request_id] = id;
  const TimePoint at = now();
  const auto& live = grants_
                         .emplace(id, Live{.grant = Grant(std::move(pull)),
                                           .started = at,
                                           .deadline = at + timeouts_.prefill,
                                           .last_token = {}})
                         .first->second;
  if (live.grant.wants_nothing()) return complete(id, {});
  hooks_.deadlines_changed();
  const auto& wanted = live.grant.pull();
  hooks_.call(wanted.params.metaserver, announcement(wanted, port), [this, id](Result<void> answer) {
    hooks_.post([this, id, answer = std::move(answer)] { on_metaserver(id, answer); });
  });
}

void LiveGrants::cancel(const std::string& request_id) {
  const auto found = names_.find(request_id);
  if (found != names_.end()) complete(found->second, fail(Code::kCancelled, "the push was cancelled"));
}

// vLLM-Ascend's body, and what our engines add.
nlohmann::json LiveGrants::announcement(const Pull& pull, int port) const {
  std::vector<int32_t> blocks;
  for (const BlockId block : pull.blocks) blocks.push_back(block.value);
  wire::KvTransferParams params;
  params.do_remote_decode = true;
  params.remote_engine_id = options_.identity.engine_id;
  params.remote_host = options_.advertised_host;
  params.remote_port = port;
  params.remote_block_ids = {blocks};
  params.baton_offer_id = pull.params.baton_offer_id;
  params.baton_seed = pull.params.baton_seed;
  auto body = params.to_json();
  body["token_ids"] = nlohmann::json::array();
  body["request_id"] = external_id(pull.request_id);
  body["remote_block_size"] = {holdings_->block_tokens()};
  body["remote_tp_size"] = options_.grid.tp;
  body["remote_pcp_size"] = options_.grid.pcp;
  body["remote_dcp_size"] = options_.grid.dcp;
  body["remote_cached_tokens"] = pull.skip_tokens;
  return body;
}

void LiveGrants::on_metaserver(uint64_t id, const Result<void>& answer) {
  const auto found = grants_.find(id);
  if (found == grants_.end()) return;
  if (!answer) return complete(id, fail(answer.error().with_context("metaserver")));
  auto& live = found->second;
  if (live.grant.lost()) return complete(id, fail(*live.grant.lost()));
  // P's prefill is over: what is still to come is on its way.
  live.announced = true;
  live.deadline = now() + timeouts_.tail;
  hooks_.deadlines_changed();
}

Result<wire::PushOpenReply> LiveGrants::open(uint64_t connection, const wire::PushOpen& open,
                                             const wire::EngineIdentity& writer) {
  const auto found = grants_.find(open.grant_id);
  if (found == grants_.end()) return no_such_grant();
  BATON_TRY_ASSIGN(auto plan, plans_.plan(writer.layout, open.grant_id));
  auto& grant = found->second.grant;
  auto opened =
      grant.open(connection, open, {.process = writer.instance_nonce, .process_count = writer.layout.grid.processes},
                 std::move(plan));
  // A refusal that is about the engine, not about this connection alone.
  if (!opened && grant.lost() && found->second.announced) complete(open.grant_id, fail(*grant.lost()));
  return opened;
}

Result<LiveGrants::Live*> LiveGrants::written_by(uint64_t connection, uint64_t id) {
  const auto found = grants_.find(id);
  if (found == grants_.end() || found->second.grant.leg(connection) == nullptr) return no_such_grant();
  return &found->second;
}

Result<void> LiveGrants::store(uint64_t connection, const wire::PushData& data, std::span<const std::byte> payload) {
  BATON_TRY_ASSIGN(Live* const live, written_by(connection, data.grant_id));
  PushLeg& leg = *live->grant.leg(connection);
  const auto bytes = static_cast<int64_t>(payload.size());
  moves_.clear();
  BATON_TRY(leg.place(data, bytes, moves_));
  if (auto moved = move(payload); !moved) {
    metrics_.checksum_failures.add();
    return fail(moved.error().with_context(
        fmt::format("{} of rank {}, entries {}+{}, blocks from {}", data.state ? "state" : "blocks",
                    leg.plan().from().rank(static_cast<int>(data.rank)).name, data.span.first_entry,
                    data.span.entry_count, data.first_place)));
  }
  leg.stored(data);
  live->grant.add_bytes(bytes);
  metrics_.received_bytes.add(static_cast<double>(bytes));
  if (live->announced) live->deadline = now() + timeouts_.tail;
  return {};
}

// Stores and verifies moves_, then what other ranks of ours want of it.
Result<void> LiveGrants::move(std::span<const std::byte> payload) {
  BATON_TRY(mover_.move(moves_.moves, payload, arena_));
  for (const LocalCopy& repeat : moves_.repeats) {
    std::memcpy(arena_.data() + repeat.to, arena_.data() + repeat.from, static_cast<size_t>(repeat.bytes));
  }
  return {};
}

Result<wire::PushEndReply> LiveGrants::end(uint64_t connection, const wire::PushEnd& end) {
  BATON_TRY_ASSIGN(Live* const live, written_by(connection, end.grant_id));
  if (!end.done) return fail(Code::kUnavailable, "the prefill engine has given the request up");
  live->last_token = end.last_token;
  auto& grant = live->grant;
  const bool whole = grant.leg(connection)->complete();
  grant.end(connection);
  if (!whole) {
    complete(end.grant_id, fail(Code::kDataLoss, "the push ended before all of the KV had come"));
  } else if (grant.finished()) {
    complete(end.grant_id, grant.outcome());
  }
  return wire::PushEndReply{end.grant_id, whole};
}

// While the proxy may still find another P, the grant waits for its word.
void LiveGrants::lose(uint64_t connection, uint64_t id, const Status& why) {
  const auto found = grants_.find(id);
  if (found == grants_.end() || !found->second.grant.lose(connection, why)) return;
  if (found->second.announced) complete(id, fail(why));
}

void LiveGrants::complete(uint64_t id, Result<void> outcome) {
  auto node = grants_.extract(id);
  auto& live = node.mapped();
  const auto& grant = live.grant;
  names_.erase(grant.pull().request_id);
  finish({.request_id = grant.pull().request_id,
          .valid_tokens = grant.valid_tokens(),
          .state_valid = grant.state_valid(),
          .bytes = grant.bytes(),
          .seconds = seconds_between(live.started, now()),
          .outcome = std::move(outcome),
          .last_token = live.last_token});
}

void LiveGrants::finish(PullResult result) {
  if (result.outcome) {
    metrics_.transfer_seconds.observe(result.seconds);
    metrics_.bytes.observe(static_cast<double>(result.bytes));
  } else if (result.outcome.error().code() != Code::kCancelled) {
    metrics_.failed.add();
    log_warning("event=kv_push_failed request={} valid_tokens={} bytes={} reason=\"{}\"", result.request_id,
                result.valid_tokens, result.bytes, result.outcome.error().to_string());
  }
  hooks_.finished(std::move(result));
}

std::optional<TimePoint> LiveGrants::next_deadline() const {
  std::optional<TimePoint> next;
  for (const auto& [id, live] : grants_) next = next ? std::min(*next, live.deadline) : live.deadline;
  return next;
}

void LiveGrants::tick() {
  std::vector<uint64_t> due;
  for (const auto& [id, live] : grants_) {
    if (live.deadline <= now()) due.push_back(id);
  }
  for (const auto id : due) {
    complete(id, fail(Code::kDeadlineExceeded, "the prefill engine's KV did not come in time: {}",
                      grants_.at(id).grant.writers()));
  }
}

}  // namespace baton::transfer
