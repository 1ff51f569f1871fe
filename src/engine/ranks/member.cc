#include "engine/ranks/member.h"

#include <algorithm>
#include <stdexcept>

#include "base/byte_codec.h"
#include "base/log.h"
#include "engine/engine_config.h"
#include "engine/ranks/local_pipeline.h"
#include "engine/ranks/member_messages.h"
#include "engine/ranks/member_offers.h"
#include "engine/ranks/rank_memory.h"
#include "engine/ranks/step_codec.h"

namespace baton::engine {
namespace {

// While something is under way here, ranks and connectors are asked this often.
constexpr auto kPoll = std::chrono::milliseconds(20);

// What must be equal on all processes, as one line.
std::string common_text(const EngineConfig& config, const RankSet& ranks) {
  return fmt::format(
      "grid {}, --max-model-len {}, --max-num-batched-tokens {}, --max-num-seqs {}, --block-size {}, --kv-cache-dtype "
      "{}, indexer {}, layers {}, model {}",
      ranks.sizes().text(), config.max_model_len, config.max_num_batched_tokens, config.max_num_seqs, config.block_size,
      config.kv_cache_dtype, config.indexer_cache_dtype, fmt::join(ranks.options().layer_partition, ","),
      ranks.model().fingerprint());
}

Result<void> send_to_others(parallel::Mesh& mesh, MemberTag which, std::span<const std::byte> message) {
  for (int member = 0; member < mesh.size(); ++member) {
    if (member != mesh.rank()) BATON_TRY(mesh.send(member, tag(which), message));
  }
  return {};
}

class MemberLoop {
 public:
  MemberLoop(parallel::Mesh& mesh, RankSet& ranks, KvHost& host, LocalPipeline& pipeline, StepLimits limits)
      : mesh_(mesh), ranks_(ranks), host_(host), pipeline_(pipeline), limits_(limits), offers_(mesh, host.producer()) {}

  Result<void> run() {
    for (bool ended = false; !ended;) {
      BATON_TRY(ranks_.health());
      BATON_TRY(offers_.report_released());
      const bool busy = pipeline_.under_way() > 0 || offers_.pending();
      auto message = mesh_.receive(0, tag(MemberTag::kControl), busy ? Duration(kPoll) : parallel::kNoTimeout);
      if (!message && message.error().code() == Code::kDeadlineExceeded) continue;
      if (!message) return fail(std::move(message).error());
      BATON_TRY_ASSIGN(ended, handle(message->span()));
    }
    BATON_TRY(settle());
    return mesh_.send(0, tag(MemberTag::kReply), {});
  }

 private:
  // True: the end.
  Result<bool> handle(std::span<const std::byte> message) {
    if (message.empty()) return fail(Code::kDataLoss, "an empty command of the leading process");
    const auto body = message.subspan(1);
    switch (static_cast<MemberCommand>(message[0])) {
      case MemberCommand::kStep:
        BATON_TRY(compute(body));
        return false;
      case MemberCommand::kOffer:
        // What is offered has been computed once no step is under way.
        BATON_TRY(settle());
        BATON_TRY(offers_.offer(body, offer_limits()));
        return false;
      case MemberCommand::kPush:
        BATON_TRY(offers_.push(body, offer_limits()));
        return false;
      case MemberCommand::kRevoke:
        BATON_TRY(offers_.revoke(body));
        return false;
      case MemberCommand::kEnd:
        return true;
    }
    return fail(Code::kDataLoss, "command {} of the leading process is unknown here", std::to_integer<int>(message[0]));
  }

  MemberOffers::Limits offer_limits() const {
    return {.blocks = limits_.blocks,
            .slots = limits_.slots,
            .block_tokens = limits_.block_tokens,
            .max_model_len = limits_.max_model_len};
  }

  Result<void> compute(std::span<const std::byte> body) {
    if (pipeline_.under_way() == pipeline_.slots()) BATON_TRY(pipeline_.take());
    auto& step = pipeline_.next_step();
    BATON_TRY(decode_step(body, limits_, step));
    for (const auto block : step.reused_blocks) host_.on_block_reuse(block);
    for (const auto slot : step.reused_slots) host_.on_slot_reuse(slot);
    BATON_TRY_ASSIGN(const auto input, mesh_.receive(mesh_.rank() - 1, tag(MemberTag::kActivations)));
    const auto room = std::as_writable_bytes(pipeline_.next_input(step.rows()));
    if (input.size() != room.size()) {
      return fail(Code::kDataLoss, "member {} sent {} bytes for {} rows, {} were expected", mesh_.rank() - 1,
                  input.size(), step.rows(), room.size());
    }
    std::ranges::copy(input.span(), room.begin());
    pipeline_.start([this](const LocalPipeline::Output& output) { pass_on(output); });
    return pipeline_.slots() == 1 ? settle() : Result<void>();
  }

  // On a rank's thread.
  void pass_on(const LocalPipeline::Output& output) {
    Result<void> sent;
    if (output.logits == nullptr) {
      sent = mesh_.send(mesh_.rank() + 1, tag(MemberTag::kActivations), std::as_bytes(output.stage_out));
    } else {
      const size_t count = output.step->logit_rows.size() * static_cast<size_t>(limits_.vocab_size);
      sent = mesh_.send(0, tag(MemberTag::kLogits), std::as_bytes(std::span(output.logits, count)));
    }
    if (!sent) throw std::runtime_error(sent.error().message());
  }

  Result<void> settle() {
    while (pipeline_.under_way() > 0) BATON_TRY(pipeline_.take());
    return {};
  }

  parallel::Mesh& mesh_;
  RankSet& ranks_;
  KvHost& host_;
  LocalPipeline& pipeline_;
  const StepLimits limits_;
  MemberOffers offers_;
};

Result<void> serve_leader(EngineConfig config, std::unique_ptr<RankSet>& ranks, parallel::Mesh& mesh,
                          const MakeKvHost& make_kv_host) {
  BATON_TRY_ASSIGN(config, resolve_config(std::move(config), ranks->model()));
  auto shapes = rank_shapes(config, *ranks);
  BATON_TRY_ASSIGN(auto counts, size_rank_caches(config, *ranks, shapes));
  BATON_TRY_ASSIGN(counts, agree_on_counts(mesh, config, *ranks, counts));
  set_counts(shapes, counts);
  log_ranks(*ranks, shapes);
  BATON_TRY_ASSIGN(const auto host, (make_kv_host ? make_kv_host : make_private_kv_host)(
                                        host_request(*ranks, shapes, mesh.size(), [] {})));
  BATON_TRY(make_workers(config, shapes, *host, *ranks));
  BATON_TRY_ASSIGN(const auto pipeline, LocalPipeline::create(*ranks, pipeline_options(config, *ranks)));
  auto* const producer = host->producer();
  BATON_TRY(say_ready(mesh, producer != nullptr ? encode_address(producer->address()) : std::string()));
  log_info("member={} of {} ready stages=[{}, {})", mesh.rank(), mesh.size(), ranks->options().stages.begin,
           ranks->options().stages.end);
  MemberLoop loop(mesh, *ranks, *host, *pipeline,
                  {.max_rows = config.max_num_batched_tokens,
                   .max_logit_rows = max_logit_rows(config),
                   .blocks = counts.blocks,
                   .slots = counts.slots,
                   .block_tokens = block_tokens(config, ranks->sizes()),
                   .max_model_len = config.max_model_len,
                   .vocab_size = ranks->model().vocab_size()});
  auto ended = loop.run();
  // The pipeline's and the host's memory outlives what ranks still do.
  if (!ended) ranks->fail_all(ended.error().message());
  while (pipeline->under_way() > 0) (void)pipeline->take();
  return ended;
}

}  // namespace

Result<KvCounts> agree_on_counts(parallel::Mesh& mesh, const EngineConfig& config, const RankSet& ranks,
                                 KvCounts counts) {
  const auto common = common_text(config, ranks);
  ByteWriter writer;
  writer.put_string(common);
  writer.put(counts.blocks);
  writer.put(counts.slots);
  BATON_TRY(send_to_others(mesh, MemberTag::kSettings, writer.view()));
  KvCounts least{.blocks = counts.blocks, .slots = 0};
  if (counts.slots > 0) least.slots = counts.slots;
  for (int member = 0; member < mesh.size(); ++member) {
    if (member == mesh.rank()) continue;
    BATON_TRY_ASSIGN(const auto message, mesh.receive(member, tag(MemberTag::kSettings), parallel::kNoTimeout));
    ByteReader reader(message.span());
    const auto text = reader.get_string();
    const auto blocks = reader.get<int64_t>(), slots = reader.get<int64_t>();
    BATON_TRY(reader.finish("the settings of a member"));
    if (text != common) {
      return fail(Code::kMismatch, "members {} and {} of this engine are set up differently: [{}] and [{}]",
                  mesh.rank(), member, common, text);
    }
    least.blocks = std::min(least.blocks, blocks);
    // Layers that keep no recurrent state have no say.
    if (slots > 0) least.slots = least.slots == 0 ? slots : std::min(least.slots, slots);
  }
  return least;
}

Result<void> send_ready(parallel::Mesh& mesh, const std::string& word) {
  return send_to_others(mesh, MemberTag::kReady, std::as_bytes(std::span(word)));
}

Result<std::vector<std::string>> await_ready(parallel::Mesh& mesh, const std::string& word) {
  std::vector<std::string> words(static_cast<size_t>(mesh.size()), word);
  for (int member = 0; member < mesh.size(); ++member) {
    if (member == mesh.rank()) continue;
    BATON_TRY_ASSIGN(const auto message, mesh.receive(member, tag(MemberTag::kReady), parallel::kNoTimeout));
    words[static_cast<size_t>(member)].assign(reinterpret_cast<const char*>(message.data()), message.size());
  }
  return words;
}

Result<std::vector<std::string>> say_ready(parallel::Mesh& mesh, const std::string& word) {
  BATON_TRY(send_ready(mesh, word));
  return await_ready(mesh, word);
}

Result<void> run_member(EngineConfig config, std::unique_ptr<RankSet> ranks, parallel::Mesh& mesh,
                        const MakeKvHost& make_kv_host) {
  auto ended = serve_leader(std::move(config), ranks, mesh, make_kv_host);
  if (ended) return ended;
  // Another member's loss is the reason of all that follows from it.
  const auto reason = mesh.failure().value_or(ended.error());
  mesh.leave(reason.message());
  return fail(reason);
}

}  // namespace baton::engine
