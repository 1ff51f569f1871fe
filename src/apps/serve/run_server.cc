#include "apps/serve/run_server.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <cstdlib>
#include <map>
#include <thread>

#include "apps/serve/handoff_host.h"
#include "apps/serve/model_files.h"
#include "apps/serve/rank_threads.h"
#include "apps/serve/served_engine.h"
#include "apps/serve/stop_on_signal.h"
#include "base/hash.h"
#include "base/log.h"
#include "kernels/matmul_onednn.h"
#include "server/openai_server.h"

namespace baton::apps {
namespace {

namespace asio = boost::asio;

// Bumped whenever a kernel's bits change: engines of different revisions don't exchange KV.
constexpr uint32_t kKernelRevision = 1;

wire::NumericProfile numeric_profile(const ServeSetup& setup) {
  return {.isa = std::string(tensor::isa_name(setup.isa)),
          .kernel_revision = kKernelRevision,
          .onednn_version = setup.allow_onednn ? kernels::onednn_version() : ""};
}

// The formats of the weights, those of most bytes first: "q4_1, q6_k, f32".
std::string quantisation_of(const weights::Checkpoint& checkpoint) {
  std::map<std::string_view, int64_t> bytes;
  for (const auto& [name, tensor] : checkpoint.tensors()) bytes[tensor::dtype_name(tensor.dtype)] += tensor.bytes;
  std::vector<std::pair<int64_t, std::string_view>> order;
  for (const auto& [format, size] : bytes) order.emplace_back(-size, format);
  std::ranges::sort(order);
  std::string text;
  for (const auto& [size, format] : order) text += (text.empty() ? "" : ", ") + std::string(format);
  const auto method = checkpoint.config().find("quantization_config");
  if (method == checkpoint.config().end()) return text;
  const auto dumped = method->dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return fmt::format("{}, quantization_config {:016x}", text, xxh3_64(std::as_bytes(std::span(dumped))));
}

std::string model_config_of(const weights::Checkpoint& checkpoint) {
  const auto& config = checkpoint.config();
  std::string architecture = "a model";
  if (const auto names = config.find("architectures"); names != config.end() && names->is_array() && !names->empty()) {
    if (names->front().is_string()) architecture = names->front().get<std::string>();
  } else if (const auto name = config.find("general.architecture"); name != config.end() && name->is_string()) {
    architecture = name->get<std::string>();
  }
  const auto dumped = config.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return fmt::format("{} {:016x}", architecture.substr(0, 200), xxh3_64(std::as_bytes(std::span(dumped))));
}

std::string tokenizer_hash(const text::Tokenizer& tokenizer) {
  Xxh3Stream state;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    state.update(std::as_bytes(std::span(tokenizer.token_spelling(id))));
    state.update(std::as_bytes(std::span("\0", 1)));
  }
  return fmt::format("{:016x}", state.digest());
}

void log_start(const ServeSetup& setup, const engine::Engine& engine, int port) {
  const auto& config = engine.config();
  log_info("model={} isa={} threads={} max_model_len={} listening={}:{}", setup.model_path, tensor::isa_name(setup.isa),
           setup.threads, config.max_model_len, setup.server.http.listen.host, port);
  log_info("Application startup complete.");
}

// Ten-second lines, as vLLM's users grep them.
net::Task<void> log_throughput(const engine::Engine& engine) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  int64_t idle_rounds = 0;
  for (;;) {
    timer.expires_after(std::chrono::seconds(10));
    co_await timer.async_wait(asio::use_awaitable);
    const auto stats = engine.stats();
    idle_rounds = stats.running + stats.waiting > 0 ? 0 : idle_rounds + 1;
    if (idle_rounds > 1) continue;
    log_info("Engine 000: Running: {} reqs, Waiting: {} reqs, KV cache usage: {:.1f}%, Prefix cache hit rate: {:.1f}%",
             stats.running, stats.waiting,
             100.0 * static_cast<double>(stats.kv_blocks_used) /
                 static_cast<double>(std::max<int64_t>(1, stats.kv_blocks_total)),
             100.0 * static_cast<double>(stats.prefix_hits) /
                 static_cast<double>(std::max<int64_t>(1, stats.prefix_queries)));
  }
}

// First signal: stop accepting, let what runs go on for the time given, and what is offered to decode engines be
// fetched, then stop; `asked` is set. Second: stop at once, whatever any thread is doing. Replicas that share experts
// stop when none of them has work, or others' requests would fail.
net::Task<void> wait_for_shutdown(asio::signal_set& signals, server::OpenAiServer& server, engine::Engine& engine,
                                  Duration grace, asio::io_context& context, bool& asked) {
  const int first = co_await signals.async_wait(asio::use_awaitable);
  asked = true;
  log_info("signal={} action=stopping in_flight={}", first, server.requests_in_flight());
  server.stop_accepting();
  exit_at_next_signal(signals);
  asio::steady_timer timer(context);
  const SteadyClock clock;
  const TimePoint began = clock.now(), deadline = began + grace;
  const auto busy = [&] {
    const auto stats = engine.stats();
    return server.requests_in_flight() > 0 || stats.group_busy > 0 || stats.offers_held > 0;
  };
  while (busy() && clock.now() < deadline) {
    timer.expires_after(std::chrono::milliseconds(20));
    co_await timer.async_wait(asio::use_awaitable);
  }
  log_info("drained in_flight={} offers_held={} seconds={:.3f}", server.requests_in_flight(),
           engine.stats().offers_held, seconds_between(began, clock.now()));
  // Whatever still runs ends as aborted; its connection gets a moment to say so.
  engine.abort_all();
  const TimePoint last = clock.now() + std::chrono::seconds(2);
  while (server.requests_in_flight() > 0 && clock.now() < last) {
    timer.expires_after(std::chrono::milliseconds(10));
    co_await timer.async_wait(asio::use_awaitable);
  }
  server.close();
  context.stop();
}

// What requests fall back on; read before the weights are, so that a wrong file is known at once.
Result<server::SamplingDefaults> sampling_defaults(const ServeSetup& setup, const ModelFiles& files) {
  nlohmann::json generation = setup.use_generation_config ? files.generation_config : nlohmann::json::object();
  generation.merge_patch(setup.generation_overrides);
  auto defaults = server::SamplingDefaults::from_generation_config(generation);
  if (defaults) return defaults;
  return fail(defaults.error().with_context(
      setup.generation_overrides.empty()
          ? fmt::format("{}/generation_config.json (--generation-config vllm leaves it out)", setup.model_path)
          : std::string("generation_config.json with --override-generation-config over it")));
}

// What processes must have in common to work together; their weights are compared once they are loaded.
std::string group_fingerprint(const ServeSetup& setup, const weights::Checkpoint& checkpoint) {
  const auto config = checkpoint.config().dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return fmt::format("grid {}, config {:016x}, {}, Baton {}", grid_sizes(setup.topology).text(),
                     xxh3_64(std::as_bytes(std::span(config))), tensor::isa_name(setup.isa), BATON_VERSION);
}

// A grid whose rank or process is lost can't go on: those that ask for a moment's health hear why, then the process
// ends, so that whoever watches starts it anew. An engine of one rank stays, as it always has.
constexpr auto kLastWords = std::chrono::seconds(2);

net::Task<void> watch_engine(const engine::Engine& engine, server::OpenAiServer& server, asio::io_context& context) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  while (engine.healthy()) {
    timer.expires_after(std::chrono::milliseconds(200));
    co_await timer.async_wait(asio::use_awaitable);
  }
  timer.expires_after(kLastWords);
  co_await timer.async_wait(asio::use_awaitable);
  server.close();
  context.stop();
}

}  // namespace

Result<void> run_server(ServeSetup setup) {
  std::signal(SIGPIPE, SIG_IGN);
  BATON_TRY_ASSIGN(auto threads, plan_rank_threads(setup.topology, setup.threads, process_environment));
  if (!threads.warning.empty()) log_warning("{}", threads.warning);
  setup.threads = threads.per_rank * setup.topology.ranks_here();

  BATON_TRY_ASSIGN(const auto checkpoint, weights::open_checkpoint(setup.model_path));
  BATON_TRY_ASSIGN(auto files, load_model_files(*checkpoint, setup.chat_template_file, setup.tokenizer_mode));
  BATON_TRY_ASSIGN(setup.server.sampling_defaults, sampling_defaults(setup, files));

  const bool several = setup.topology.dp_size_local > 1;
  Labels labels{{"model_name", setup.server.served_model_names.front()}};
  if (!several) labels.emplace("engine", std::to_string(setup.topology.dp_rank));
  MetricRegistry metrics(labels);
  setup.engine.eos_token_ids = files.eos_token_ids;
  EngineSources sources{.setup = setup,
                        .threads = std::move(threads),
                        .fingerprint = group_fingerprint(setup, *checkpoint),
                        .metrics = metrics,
                        .make_kv_host = {}};
  if (setup.engine.kv_transfer.role != engine::KvRole::kNone) {
    sources.make_kv_host = [&, hash = tokenizer_hash(*files.tokenizer), model_config = model_config_of(*checkpoint),
                            quantisation = quantisation_of(*checkpoint)](const engine::EngineConfig& config,
                                                                         MetricRegistry& registry) {
      return handoff_host_factory({.config = config.kv_transfer,
                                   .profile = numeric_profile(setup),
                                   .tokenizer_hash = hash,
                                   .model_config = model_config,
                                   .quantisation = quantisation,
                                   .metrics = &registry});
    };
  }
  if (setup.topology.headless) return run_headless(sources);
  BATON_TRY_ASSIGN(const auto served, make_served_engine(sources));
  auto* const engine = served.engine.get();

  setup.server.limits.vocab_size = engine->vocab_size();
  asio::io_context context(1);
  // Before anyone can see that the server is there, so that a signal after that is an orderly stop.
  asio::signal_set signals(context);
  add_stop_signals(signals);
  BATON_TRY_ASSIGN(auto server, server::OpenAiServer::start(context.get_executor(),
                                                            {.engine = *engine,
                                                             .tokenizer = *files.tokenizer,
                                                             .chat_format = files.chat_format.get(),
                                                             .metrics = metrics},
                                                            setup.server));
  log_start(setup, *engine, server->port());
  bool asked_to_stop = false;
  asio::co_spawn(context, wait_for_shutdown(signals, *server, *engine, setup.shutdown_timeout, context, asked_to_stop),
                 asio::detached);
  asio::co_spawn(context, log_throughput(*engine), asio::detached);
  if (!setup.topology.one_rank()) asio::co_spawn(context, watch_engine(*engine, *server, context), asio::detached);
  context.run();
  const bool well = engine->healthy();
  const std::string reason = engine->health_reason();

  // Its callbacks post to the context, which goes before the engine does.
  engine->drain(std::chrono::seconds(0));
  // Where a whole deployment stops, who stops later sees the others go: that is no failure of its own.
  if (const auto why = left_by_others(served); asked_to_stop && why) {
    log_info("stopped while others did: {}", why->message());
    return {};
  }
  if (!well && !setup.topology.one_rank()) return fail(Code::kUnavailable, "the engine has stopped: {}", reason);
  log_info("stopped");
  return {};
}

}  // namespace baton::apps
