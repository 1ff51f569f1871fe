// `baton bench serve`: vLLM's flags, a load over HTTP, vLLM's report.
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <random>
#include <thread>

#include "apps/bench/bench_command.h"
#include "apps/bench/bench_flags.h"
#include "apps/bench/bench_output.h"
#include "apps/bench/bench_tokenizer.h"
#include "base/clock.h"
#include "bench/load_client.h"
#include "bench/machine_limits.h"
#include "bench/report.h"

namespace baton::apps {
namespace {

struct ServeFlags {
  DatasetFlags dataset;
  bench::ReportOptions report;
  std::string base_url, host = "127.0.0.1", endpoint = "/v1/completions", model, served_model_name, tokenizer;
  std::string tokenizer_mode = "auto", extra_body, percentile_metrics = "ttft,tpot,itl", percentiles = "99";
  std::string result_dir, result_filename, request_id_prefix;
  std::vector<std::string> headers, goodput;
  int port = 8000;
  int64_t num_warmups = 0;
  double ready_timeout_s = 0, rate = INFINITY;
  std::optional<double> temperature, top_p, min_p, frequency_penalty, presence_penalty, repetition_penalty;
  std::optional<int> top_k, logprobs;
  bool ignore_eos = false, save_result = false, append_result = false, no_progress = false, insecure = false;
  bool trust_remote_code = false, skip_limits = false, self_timed = false, not_self_timed = false;
};

void add_server_flags(CLI::App& app, ServeFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* help) { return app.add_option(name, value, help); };
  add("--backend", flags.report.backend, "openai, vllm (completions) or openai-chat")
      ->check(CLI::IsMember({"openai", "vllm", "openai-chat"}))
      ->capture_default_str();
  add("--base-url", flags.base_url, "http://host:port, in place of --host and --port");
  add("--host", flags.host, "The server")->capture_default_str();
  add("--port", flags.port, "Its port")->check(CLI::Range(1, 65535))->capture_default_str();
  add("--endpoint", flags.endpoint, "Where requests go; openai-chat: /v1/chat/completions where not given");
  add("--header", flags.headers, "KEY=VALUE, sent with every request")->expected(1, -1);
  add("--model", flags.model, "Name in requests; not given: the server's first");
  add("--served-model-name", flags.served_model_name, "Name in requests, where --model names the tokenizer's place");
  add("--tokenizer", flags.tokenizer, "Folder, GGUF file or cached id that makes prompts; not given: the model");
  add("--tokenizer-mode", flags.tokenizer_mode, "As of baton serve")->capture_default_str();
  app.add_flag("--trust-remote-code", flags.trust_remote_code, "Taken for vLLM's sake: there is no code to trust");
  app.add_flag("--insecure", flags.insecure, "Don't check the server's certificate");
  add("--ready-check-timeout-sec", flags.ready_timeout_s, "Wait so long for the server to answer")
      ->check(CLI::NonNegativeNumber);
}

void add_load_flags(CLI::App& app, ServeFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->group("Load");
  };
  auto& arrivals = flags.report.arrivals;
  add("--request-rate", flags.rate, "Requests a second; inf: all at once");
  add("--burstiness", arrivals.burstiness, "Shape of the gamma distribution of gaps; 1: Poisson")
      ->capture_default_str();
  add("--max-concurrency", flags.report.max_concurrency, "Requests under way at most");
  add("--ramp-up-strategy", arrivals.ramp, "linear or exponential");
  add("--ramp-up-start-rps", arrivals.ramp_start_rps, "Rate of the first request");
  add("--ramp-up-end-rps", arrivals.ramp_end_rps, "Rate of the last");
  add("--num-warmups", flags.num_warmups, "Requests before the measurement")->check(CLI::NonNegativeNumber);
  app.add_flag("--self-timed", flags.self_timed, "Send when the trace says; so by default with timed_trace")
      ->group("Load");
  app.add_flag("--no-self-timed", flags.not_self_timed, "Send a trace at --request-rate")->group("Load");
  app.add_flag("--ignore-eos", flags.ignore_eos, "Always generate the whole length")->group("Load");
  add("--logprobs", flags.logprobs, "Log-probabilities per token");
  add("--temperature", flags.temperature, "Sampling; not given: the server's");
  add("--top-p", flags.top_p, "Sampling");
  add("--top-k", flags.top_k, "Sampling");
  add("--min-p", flags.min_p, "Sampling");
  add("--frequency-penalty", flags.frequency_penalty, "Sampling");
  add("--presence-penalty", flags.presence_penalty, "Sampling");
  add("--repetition-penalty", flags.repetition_penalty, "Sampling");
  add("--extra-body", flags.extra_body, "JSON over each request's body");
  add("--request-id-prefix", flags.request_id_prefix, "Of x-request-id; not given: bench- and eight random digits");
}

void add_report_flags(CLI::App& app, ServeFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->group("Report");
  };
  add("--label", flags.report.label, "In the file's name, in place of the backend");
  add("--percentile-metrics", flags.percentile_metrics, "Of ttft,tpot,itl,e2el")->capture_default_str();
  add("--metric-percentiles", flags.percentiles, "Comma-separated")->capture_default_str();
  add("--goodput", flags.goodput, "ttft:MS tpot:MS e2el:MS")->expected(1, -1);
  add("--metadata", flags.report.metadata, "KEY=VALUE pairs for the file")->expected(1, -1);
  add("--result-dir", flags.result_dir, "Folder of the file");
  add("--result-filename", flags.result_filename, "Name of the file");
  app.add_flag("--save-result", flags.save_result, "Write the result as JSON")->group("Report");
  app.add_flag("--save-detailed", flags.report.detailed, "With every request in it")->group("Report");
  app.add_flag("--append-result", flags.append_result, "Add to the file")->group("Report");
  app.add_flag("--disable-tqdm", flags.no_progress, "No progress line")->group("Report");
  app.add_flag("--skip-limits", flags.skip_limits, "Don't measure the machine first")->group("Report");
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Result<void> finish_report_options(ServeFlags& flags) {
  auto& report = flags.report;
  report.arrivals.rate = flags.rate;
  report.arrivals.seed = flags.dataset.options.seed;
  report.metrics = split(flags.percentile_metrics);
  report.percents.clear();
  for (const auto& word : split(flags.percentiles)) {
    char* end = nullptr;
    report.percents.push_back(std::strtod(word.c_str(), &end));
    if (*end != '\0') return fail(Code::kInvalidArgument, "--metric-percentiles '{}': not a number", word);
  }
  BATON_TRY_ASSIGN(report.goodput, bench::parse_goodput(flags.goodput));
  if (report.max_concurrency && *report.max_concurrency < 1) {
    return fail(Code::kInvalidArgument, "--max-concurrency must be above 0");
  }
  BATON_TRY(bench::check_arrivals(report.arrivals));
  return bench::check_report_options(report);
}

Result<nlohmann::json> extra_body(const ServeFlags& flags) {
  auto extra = nlohmann::json::object();
  const auto set = [&](const char* key, const auto& value) {
    if (value) extra[key] = *value;
  };
  set("temperature", flags.temperature);
  set("top_p", flags.top_p);
  set("top_k", flags.top_k);
  set("min_p", flags.min_p);
  set("frequency_penalty", flags.frequency_penalty);
  set("presence_penalty", flags.presence_penalty);
  set("repetition_penalty", flags.repetition_penalty);
  if (flags.extra_body.empty()) return extra;
  const auto given = nlohmann::json::parse(flags.extra_body, nullptr, false);
  if (!given.is_object()) return fail(Code::kInvalidArgument, "--extra-body is no JSON object: {}", flags.extra_body);
  extra.update(given);
  return extra;
}

Result<bench::LoadOptions> load_options(const ServeFlags& flags) {
  bench::LoadOptions options;
  const bool bare_v6 = flags.host.find(':') != std::string::npos && !flags.host.starts_with('[');
  const std::string host = bare_v6 ? "[" + flags.host + "]" : flags.host;
  const auto url = flags.base_url.empty() ? fmt::format("http://{}:{}", host, flags.port) : flags.base_url;
  BATON_TRY_ASSIGN(options.origin, bench::parse_base_url(url));
  options.payload.chat = flags.report.backend == "openai-chat";
  options.endpoint = flags.endpoint;
  if (options.payload.chat && !flags.endpoint.ends_with("chat/completions")) {
    if (flags.endpoint != "/v1/completions") {
      return fail(Code::kInvalidArgument,
                  "--endpoint {}: --backend openai-chat needs one that ends in chat/completions", flags.endpoint);
    }
    options.endpoint = "/v1/chat/completions";
  }
  if (!options.endpoint.starts_with('/')) options.endpoint = "/" + options.endpoint;
  if (const char* key = std::getenv("OPENAI_API_KEY")) {
    options.headers.set("Authorization", std::string("Bearer ") + key);
  }
  for (const auto& header : flags.headers) {
    const size_t equals = header.find('=');
    if (equals == std::string::npos || equals == 0 || header.find_first_of("\r\n") != std::string::npos) {
      return fail(Code::kInvalidArgument, "--header '{}': write KEY=VALUE", header);
    }
    options.headers.set(header.substr(0, equals), header.substr(equals + 1));
  }
  options.request_id_prefix =
      flags.request_id_prefix.empty() ? fmt::format("bench-{:08x}-", std::random_device()()) : flags.request_id_prefix;
  options.verify_tls = !flags.insecure;
  options.max_concurrency = flags.report.max_concurrency.value_or(0);
  options.keep_text = flags.report.detailed;
  options.progress = !flags.no_progress;
  // The random data set wants its lengths.
  options.payload.ignore_eos = flags.ignore_eos || flags.dataset.options.name == "random";
  options.payload.logprobs = flags.logprobs;
  BATON_TRY_ASSIGN(options.payload.extra, extra_body(flags));
  return options;
}

// {name in requests, where its files may be}
Result<std::pair<std::string, std::string>> first_model(const bench::LoadOptions& options) {
  BATON_TRY_ASSIGN(const auto answer, bench::fetch(options, "/v1/models"));
  const auto list = nlohmann::json::parse(answer.body, nullptr, false);
  if (answer.status != 200 || !list.is_object() || !list.contains("data") || !list["data"].is_array() ||
      list["data"].empty() || !list["data"][0].is_object() || !list["data"][0].contains("id") ||
      !list["data"][0]["id"].is_string()) {
    return fail(Code::kUnavailable, "/v1/models answered {} without a model: name it with --model", answer.status);
  }
  const auto& model = list["data"][0];
  const auto id = model["id"].get<std::string>();
  const bool rooted = model.contains("root") && model["root"].is_string();
  return std::pair(id, rooted ? model["root"].get<std::string>() : id);
}

// Asks for the list of models until there is an answer.
Result<void> wait_until_ready(const bench::LoadOptions& options, double timeout_s) {
  const SteadyClock clock;
  const TimePoint begin = clock.now();
  for (;;) {
    const auto answer = bench::fetch(options, "/v1/models");
    if (answer && answer->status < 500) return {};
    if (seconds_between(begin, clock.now()) >= timeout_s) {
      return fail(Code::kUnavailable, "the server at {}:{} isn't ready: {}", options.origin.host, options.origin.port,
                  answer ? fmt::format("HTTP {}", answer->status) : answer.error().message());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

// The first request `count` times before the measurement; a wrong set-up says so here.
Result<void> warm_up(const std::vector<bench::Sample>& samples, bench::LoadOptions options, int64_t count) {
  if (count < 1) return {};
  options.progress = false;
  options.send_at_s.assign(static_cast<size_t>(count), 0.0);
  const auto result = bench::run_load(std::vector(static_cast<size_t>(count), samples.front()), options);
  if (result.interrupted) return fail(Code::kCancelled, "interrupted");
  if (result.records.front().success) return {};
  return fail(Code::kUnavailable, "a first request to {}:{}{} failed: {}", options.origin.host, options.origin.port,
              options.endpoint, result.records.front().error);
}

void print_failures(const std::vector<bench::RequestRecord>& records) {
  constexpr int kShown = 10;
  int shown = 0;
  for (const auto& record : records) {
    if (record.success || record.interrupted || shown == kShown) continue;
    if (shown == 0) fmt::print("Failed requests (the first {}):\n", kShown);
    fmt::print("  {}: {}\n", shown++, record.error);
  }
}

Result<int> run(ServeFlags& flags) {
  BATON_TRY(finish_report_options(flags));
  BATON_TRY_ASSIGN(auto options, load_options(flags));
  BATON_TRY_ASSIGN(const auto dataset, dataset_options(flags.dataset));
  if (flags.ready_timeout_s > 0) BATON_TRY(wait_until_ready(options, flags.ready_timeout_s));
  std::string root = flags.model;
  if (flags.model.empty()) {
    BATON_TRY_ASSIGN(std::tie(flags.model, root), first_model(options));
  }
  options.payload.model = flags.served_model_name.empty() ? flags.model : flags.served_model_name;
  flags.report.model_id = flags.model;
  flags.report.tokenizer_id = flags.tokenizer.empty() ? root : flags.tokenizer;
  BATON_TRY_ASSIGN(const auto tokenizer, load_bench_tokenizer(flags.report.tokenizer_id, flags.tokenizer_mode));
  BATON_TRY_ASSIGN(const auto samples, bench::make_dataset(dataset, *tokenizer));
  flags.report.num_prompts = std::ssize(samples);

  bench::MachineLimits limits;
  if (!flags.skip_limits) {
    limits = bench::measure_limits();
    fmt::print("{}", bench::limits_text(limits));
    std::fflush(stdout);
  }
  BATON_TRY(warm_up(samples, options, flags.num_warmups));
  options.send_at_s = bench::arrival_times(flags.report.arrivals, std::ssize(samples));
  if ((flags.self_timed || dataset.name == "timed_trace") && !flags.not_self_timed) {
    for (size_t i = 0; i < samples.size(); ++i) options.send_at_s[i] = samples[i].at_s.value_or(0);
  }
  const auto result = bench::run_load(samples, options);
  const auto metrics = bench::measure(result.records, result.duration_s, flags.report.percents, flags.report.goodput);
  print_failures(result.records);
  if (result.interrupted) fmt::print("Interrupted: what there is up to here\n");
  fmt::print("{}", bench::serve_report_text(metrics, flags.report));
  if (flags.save_result || flags.append_result) {
    const auto date = report_date();
    auto json = bench::serve_report_json(metrics, result.records, flags.report, date);
    if (!flags.skip_limits) json["machine_limits"] = bench::limits_json(limits);
    json["client_cpu_seconds"] = result.client_cpu_s;
    const auto name =
        flags.result_filename.empty() ? bench::result_file_name(flags.report, date) : flags.result_filename;
    BATON_TRY(write_report((std::filesystem::path(flags.result_dir) / name).string(), json, flags.append_result));
  }
  if (result.interrupted) return 130;
  return metrics.completed > 0 ? 0 : 1;
}

}  // namespace

int bench_serve_command(int argc, char** argv) {
  ServeFlags flags;
  CLI::App app{"Send a load to an OpenAI-compatible server and report latencies and throughput.", "baton bench serve"};
  add_server_flags(app, flags);
  add_load_flags(app, flags);
  add_dataset_flags(app, flags.dataset);
  add_report_flags(app, flags);
  if (const auto status = parse_bench_line(app, argc, argv)) return *status;
  std::signal(SIGPIPE, SIG_IGN);
  const auto status = run(flags);
  if (status) return *status;
  fmt::print(stderr, "baton bench serve: {}\n", status.error().message());
  return status.error().code() == Code::kInvalidArgument ? 2 : 1;
}

}  // namespace baton::apps
