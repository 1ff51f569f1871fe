#include "apps/args/flag_table.h"

#include <array>
#include <utility>

namespace baton::apps {
namespace {

using enum FlagKind;
constexpr FlagStatus kDone = FlagStatus::kImplemented;
constexpr FlagStatus kInert = FlagStatus::kInert;
constexpr FlagStatus kRefused = FlagStatus::kRefused;

constexpr std::string_view kOneRank = "more than one rank is not in this version of Baton";
constexpr std::string_view kGraphs = "graph capture has no CPU counterpart";
constexpr std::string_view kText = "only text models are in this version of Baton";
constexpr std::string_view kLog = "Baton logs one line per event; this switch has nothing to change";

constexpr std::array kFlags{
    // Model
    Flag{"model", kString, kDone, "Model", "", "The model; the same as the positional argument"},
    Flag{"tokenizer", kString, kRefused, "Model", "the model's", "Another tokenizer", "a tokenizer apart from the model is not in this version of Baton", ""},
    Flag{"tokenizer-mode", kString, kRefused, "Model", "auto", "Which tokenizer code to use", "this tokenizer mode belongs to a model family that is not in this version of Baton", "auto|hf|slow"},
    Flag{"trust-remote-code", kBool, kInert, "Model", "false", "Run code from the checkpoint", "Baton runs no code from a checkpoint"},
    Flag{"dtype", kString, kInert, "Model", "auto", "Compute dtype", "each weight format fixes its own arithmetic (docs/exactness.md)"},
    Flag{"max-model-len", kHumanInt, kDone, "Model", "the model's", "Longest prompt plus answer, in tokens; -1 or auto: the model's"},
    Flag{"served-model-name", kList, kDone, "Model", "the model's path", "Names clients may use; the first stands in answers"},
    Flag{"quantization", kString, kRefused, "Model", "from the checkpoint", "Weight quantisation", "Ascend ModelSlim checkpoints are not in this version of Baton; GGUF formats are read from the file, without this flag", "none|auto|gguf"},
    Flag{"load-format", kString, kInert, "Model", "auto", "Checkpoint format", "the format is read from the files"},
    Flag{"model-loader-extra-config", kJson, kInert, "Model", "{}", "Options of the loader", "weights are mapped and packed by --threads threads"},
    Flag{"safetensors-load-strategy", kString, kInert, "Model", "lazy", "How safetensors are read", "files are mapped"},
    Flag{"safetensors-prefetch-block-size", kHumanInt, kInert, "Model", "", "Prefetch size", "files are mapped"},
    Flag{"generation-config", kString, kDone, "Model", "auto", "auto: sampling defaults from generation_config.json; vllm: none"},
    Flag{"override-generation-config", kJson, kDone, "Model", "{}", "Sampling defaults over those of the checkpoint"},
    Flag{"seed", kInt, kDone, "Model", "0", "Root of the seeds drawn where a request gives none"},
    Flag{"max-logprobs", kInt, kDone, "Model", "20", "Most logprobs a request may ask for; -1: no bound"},
    Flag{"chat-template", kString, kDone, "Model", "the checkpoint's", "File with a Jinja chat template"},
    Flag{"hf-overrides", kJson, kRefused, "Model", "{}", "Values over those of config.json", "overriding the checkpoint's configuration is not in this version of Baton", "{}"},
    Flag{"revision", kString, kInert, "Model", "", "Revision in a hub", "models are local"},
    Flag{"download-dir", kString, kInert, "Model", "", "Where to download", "models are local"},
    // Engine
    Flag{"max-num-batched-tokens", kHumanInt, kDone, "Engine", "2048", "Tokens computed in one step, prompts and answers together"},
    Flag{"max-num-seqs", kInt, kDone, "Engine", "128", "Requests computed at a time"},
    Flag{"max-num-scheduled-tokens", kHumanInt, kInert, "Engine", "", "Tokens scheduled in one step", "the same as --max-num-batched-tokens without speculation"},
    Flag{"gpu-memory-utilization", kFloat, kDone, "Engine", "0.9", "Share of the usable memory (within the cgroup's limit) for weights and KV"},
    Flag{"kv-cache-memory-bytes", kHumanInt, kDone, "Engine", "from --gpu-memory-utilization", "Memory for KV"},
    Flag{"num-gpu-blocks-override", kInt, kRefused, "Engine", "", "KV blocks", "use --kv-cache-memory-bytes", ""},
    Flag{"block-size", kInt, kDone, "Engine", "16", "Tokens per KV block"},
    Flag{"kv-cache-dtype", kString, kDone, "Engine", "auto", "auto, bfloat16, float16 or float32"},
    Flag{"enable-prefix-caching", kBool, kDone, "Engine", "true", "Reuse the KV of equal beginnings"},
    Flag{"prefix-caching-hash-algo", kString, kInert, "Engine", "sha256", "Hash of prefix blocks", "SHA-256 always"},
    Flag{"enable-chunked-prefill", kBool, kInert, "Engine", "true", "Cut long prompts", "prompts are always cut where the token budget needs it"},
    Flag{"long-prefill-token-threshold", kInt, kDone, "Engine", "0", "Largest piece of a prompt in one step; 0: the budget"},
    Flag{"max-num-partial-prefills", kInt, kInert, "Engine", "1", "Prompts cut at a time", "bounded by the token budget"},
    Flag{"max-long-partial-prefills", kInt, kInert, "Engine", "1", "Long prompts cut at a time", "bounded by the token budget"},
    Flag{"scheduling-policy", kString, kDone, "Engine", "fcfs", "fcfs or priority"},
    Flag{"max-waiting-requests", kInt, kDone, "Engine", "4096", "Requests that may wait; beyond: 429 (Baton's own)"},
    Flag{"async-scheduling", kBool, kInert, "Engine", "", "Schedule ahead", "scheduling takes microseconds here"},
    Flag{"enforce-eager", kBool, kInert, "Engine", "false", "No graphs", kGraphs},
    Flag{"compilation-config", kJson, kInert, "Engine", "{}", "Graph capture", kGraphs},
    Flag{"optimization-level", kInt, kInert, "Engine", "", "-O0 to -O3", kGraphs},
    Flag{"cuda-graph-sizes", kList, kInert, "Engine", "", "Graph sizes", kGraphs},
    Flag{"stream-interval", kInt, kInert, "Engine", "1", "Tokens per event", "every token is sent when it is there"},
    Flag{"speculative-config", kJson, kRefused, "Engine", "none", "Speculative decoding", "speculative decoding is not in this version of Baton", ""},
    Flag{"attention-config", kJson, kRefused, "Engine", "{}", "Attention options", "sparse attention's indexer is not in this version of Baton", "{}"},
    Flag{"attention-backend", kString, kInert, "Engine", "", "Attention kernel", "there is one attention arithmetic (docs/exactness.md)"},
    Flag{"additional-config", kJson, kDone, "Engine", "{}", "Platform options; each key is checked on its own"},
    Flag{"kv-transfer-config", kJson, kDone, "Engine", "none", "Hand-off of KV between prefill and decode engines"},
    Flag{"kv-events-config", kJson, kRefused, "Engine", "none", "KV events", "KV events are not in this version of Baton", R"({}|{"enable_kv_cache_events":false})"},
    Flag{"kv-offloading-size", kFloat, kRefused, "Engine", "", "KV offloading", "KV offloading is not in this version of Baton", ""},
    Flag{"kv-offloading-backend", kString, kInert, "Engine", "", "KV offloading", "KV offloading is not in this version of Baton"},
    Flag{"lora-modules", kList, kRefused, "Engine", "", "LoRA adapters", "LoRA is not in this version of Baton", ""},
    Flag{"enable-lora", kBool, kRefused, "Engine", "false", "LoRA adapters", "LoRA is not in this version of Baton", "false"},
    // Parallelism
    Flag{"tensor-parallel-size", kInt, kRefused, "Parallel", "1", "Ranks that split each layer", kOneRank, "1"},
    Flag{"pipeline-parallel-size", kInt, kRefused, "Parallel", "1", "Ranks that split the layers", kOneRank, "1"},
    Flag{"prefill-context-parallel-size", kInt, kRefused, "Parallel", "1", "Ranks that split a prompt", kOneRank, "1"},
    Flag{"decode-context-parallel-size", kInt, kRefused, "Parallel", "1", "Ranks that split KV", kOneRank, "1"},
    Flag{"cp-kv-cache-interleave-size", kInt, kInert, "Parallel", "1", "Tokens in a row on one context rank", "one rank holds all tokens"},
    Flag{"data-parallel-size", kInt, kRefused, "Parallel", "1", "Replicas", kOneRank, "1"},
    Flag{"data-parallel-rank", kInt, kRefused, "Parallel", "", "This replica", kOneRank, "0"},
    Flag{"data-parallel-start-rank", kInt, kRefused, "Parallel", "", "First replica here", kOneRank, "0"},
    Flag{"data-parallel-size-local", kInt, kRefused, "Parallel", "1", "Replicas here", kOneRank, "1"},
    Flag{"data-parallel-address", kString, kInert, "Parallel", "127.0.0.1", "Where replicas meet", "one replica meets nobody"},
    Flag{"data-parallel-rpc-port", kInt, kInert, "Parallel", "29550", "Where replicas meet", "one replica meets nobody"},
    Flag{"data-parallel-backend", kString, kRefused, "Parallel", "mp", "How replicas start", "ray is not supported", "mp"},
    Flag{"data-parallel-hybrid-lb", kBool, kRefused, "Parallel", "false", "Hybrid load balancing", kOneRank, "false"},
    Flag{"data-parallel-external-lb", kBool, kRefused, "Parallel", "false", "External load balancing", kOneRank, "false"},
    Flag{"enable-expert-parallel", kBool, kInert, "Parallel", "false", "Experts on different ranks", "one rank holds every expert"},
    Flag{"distributed-executor-backend", kString, kRefused, "Parallel", "mp", "How ranks start", "ray and external launchers are not supported", "mp|uni"},
    Flag{"nnodes", kInt, kRefused, "Parallel", "1", "Hosts of one engine", kOneRank, "1"},
    Flag{"node-rank", kInt, kRefused, "Parallel", "0", "This host", kOneRank, "0"},
    Flag{"master-addr", kString, kInert, "Parallel", "127.0.0.1", "Where hosts meet", "one host meets nobody"},
    Flag{"master-port", kInt, kInert, "Parallel", "29501", "Where hosts meet", "one host meets nobody"},
    Flag{"headless", kBool, kRefused, "Parallel", "false", "An engine without a server", kOneRank, "false"},
    Flag{"api-server-count", kInt, kInert, "Parallel", "1", "Server processes", "one event loop serves one engine"},
    // Multi-modal
    Flag{"limit-mm-per-prompt", kJson, kInert, "Multi-modal", "{}", "Images per prompt", kText},
    Flag{"mm-encoder-tp-mode", kString, kInert, "Multi-modal", "weights", "How the encoder is split", kText},
    Flag{"mm-processor-cache-gb", kFloat, kInert, "Multi-modal", "4", "Cache of processed images", kText},
    Flag{"skip-mm-profiling", kBool, kInert, "Multi-modal", "false", "No memory profiling of images", kText},
    Flag{"allowed-local-media-path", kString, kInert, "Multi-modal", "", "Folder of file:// media", kText},
    Flag{"language-model-only", kBool, kInert, "Multi-modal", "false", "No encoders", kText},
    // Server
    Flag{"host", kString, kDone, "Server", "127.0.0.1 (as vllm: all interfaces)", "Address to listen on"},
    Flag{"port", kInt, kDone, "Server", "8000", "Port to listen on"},
    Flag{"uds", kString, kDone, "Server", "", "Unix socket to listen on instead"},
    Flag{"api-key", kAppend, kDone, "Server", "VLLM_API_KEY", "Key that clients must send; may be repeated"},
    Flag{"ssl-certfile", kString, kDone, "Server", "", "TLS: the server's certificate"},
    Flag{"ssl-keyfile", kString, kDone, "Server", "", "TLS: its key"},
    Flag{"ssl-ca-certs", kString, kDone, "Server", "", "TLS: whom to trust as clients"},
    Flag{"ssl-cert-reqs", kInt, kDone, "Server", "0", "TLS: 2 asks clients for a certificate"},
    Flag{"ssl-ciphers", kString, kInert, "Server", "", "TLS: ciphers", "OpenSSL's default ciphers are used"},
    Flag{"enable-ssl-refresh", kBool, kRefused, "Server", "false", "TLS: reload certificates", "reloading certificates is not in this version of Baton", "false"},
    Flag{"allowed-origins", kJson, kInert, "Server", R"(["*"])", "CORS origins", "every origin is allowed, without credentials"},
    Flag{"allowed-methods", kJson, kInert, "Server", R"(["*"])", "CORS methods", "GET, POST and OPTIONS"},
    Flag{"allowed-headers", kJson, kInert, "Server", R"(["*"])", "CORS headers", "the headers that the routes read"},
    Flag{"allow-credentials", kBool, kRefused, "Server", "false", "CORS credentials", "CORS credentials are not supported", "false"},
    Flag{"root-path", kString, kRefused, "Server", "", "Path behind a proxy", "a root path is not in this version of Baton", ""},
    Flag{"middleware", kAppend, kRefused, "Server", "", "Python middleware", "Baton runs no Python", ""},
    Flag{"response-role", kString, kDone, "Server", "assistant", "Role in chat answers"},
    Flag{"default-chat-template-kwargs", kJson, kDone, "Server", "{}", "Variables for the chat template"},
    Flag{"chat-template-content-format", kString, kInert, "Server", "auto", "string or openai", "text parts are joined"},
    Flag{"trust-request-chat-template", kBool, kDone, "Server", "false", "Let requests bring a chat template"},
    Flag{"enable-prompt-tokens-details", kBool, kDone, "Server", "false", "usage tells cached tokens"},
    Flag{"enable-force-include-usage", kBool, kDone, "Server", "false", "Streams always end with usage"},
    Flag{"enable-request-id-headers", kBool, kDone, "Server", "false", "Answers carry X-Request-Id"},
    Flag{"enable-server-load-tracking", kBool, kInert, "Server", "false", "Count requests for /load", "/load always counts"},
    Flag{"enable-per-request-metrics", kBool, kInert, "Server", "false", "Metrics in answers", "use /metrics"},
    Flag{"enable-tokenizer-info-endpoint", kBool, kRefused, "Server", "false", "/tokenizer_info", "/tokenizer_info is not in this version of Baton", "false"},
    Flag{"return-tokens-as-token-ids", kBool, kDone, "Server", "false", "Logprobs spell tokens as token_id:N"},
    Flag{"enable-auto-tool-choice", kBool, kRefused, "Server", "false", "Tool calls", "tool calls are not in this version of Baton", "false"},
    Flag{"tool-call-parser", kString, kRefused, "Server", "", "Tool calls", "tool calls are not in this version of Baton", ""},
    Flag{"tool-parser-plugin", kString, kRefused, "Server", "", "Tool calls", "Baton runs no Python", ""},
    Flag{"exclude-tools-when-tool-choice-none", kBool, kInert, "Server", "false", "Hide tools", "tools reach the template only when a request has them"},
    Flag{"reasoning-parser", kString, kRefused, "Server", "", "Reasoning text", "reasoning parsers are not in this version of Baton", ""},
    Flag{"shutdown-timeout", kFloat, kDone, "Server", "0", "Seconds that running requests may go on after SIGTERM"},
    Flag{"h11-max-incomplete-event-size", kHumanInt, kDone, "Server", "65536", "Largest request head, in bytes"},
    Flag{"h11-max-header-count", kInt, kDone, "Server", "256", "Most request headers"},
    Flag{"max-request-bytes", kHumanInt, kDone, "Server", "512M", "Largest request body (Baton's own)"},
    Flag{"max-connections", kInt, kDone, "Server", "8192", "Most connections; beyond: 503 (Baton's own)"},
    Flag{"disable-fastapi-docs", kBool, kInert, "Server", "false", "No /docs", "there is no /docs"},
    Flag{"uvicorn-log-level", kString, kInert, "Server", "info", "Server's log level", kLog},
    Flag{"disable-uvicorn-access-log", kBool, kInert, "Server", "false", "No access log", kLog},
    Flag{"disable-access-log-for-endpoints", kString, kInert, "Server", "", "No access log for some", kLog},
    Flag{"log-config-file", kString, kInert, "Server", "", "Logging configuration", kLog},
    Flag{"max-log-len", kInt, kInert, "Server", "", "Longest logged prompt", "prompts are never logged"},
    Flag{"enable-log-requests", kBool, kInert, "Server", "false", "Log requests", "prompts are never logged"},
    Flag{"disable-log-requests", kBool, kInert, "Server", "true", "Log no requests", "prompts are never logged"},
    Flag{"enable-log-outputs", kBool, kInert, "Server", "false", "Log answers", "answers are never logged"},
    Flag{"enable-log-deltas", kBool, kInert, "Server", "false", "Log pieces of answers", "answers are never logged"},
    Flag{"disable-log-stats", kBool, kInert, "Server", "false", "No statistics", kLog},
    Flag{"aggregate-engine-logging", kBool, kInert, "Server", "false", "One statistics line", kLog},
    Flag{"fingerprint-mode", kString, kInert, "Server", "none", "system_fingerprint", "system_fingerprint is null"},
    Flag{"fingerprint-value", kString, kInert, "Server", "", "system_fingerprint", "system_fingerprint is null"},
    Flag{"kv-cache-metrics", kBool, kInert, "Server", "false", "Metrics of blocks", "block life times are not measured"},
    Flag{"show-hidden-metrics-for-version", kString, kInert, "Server", "", "Old metrics", "old names are always shown"},
    Flag{"otlp-traces-endpoint", kString, kRefused, "Server", "", "Traces", "traces are not in this version of Baton", ""},
    Flag{"profiler-config", kJson, kInert, "Server", "none", "Torch profiler", "there is no torch here; /start_profile is not in this version of Baton"},
    Flag{"tokens-only", kBool, kInert, "Server", "false", "Token ids only", "both forms are served"},
    Flag{"grpc", kBool, kRefused, "Server", "false", "gRPC server", "gRPC is not supported", "false"},
    Flag{"config", kString, kDone, "Server", "", "YAML file of flags; the command line wins over it"},
    // Baton
    Flag{"threads", kInt, kDone, "Baton", "the usable cores", "Compute threads (OMP_NUM_THREADS is not read)"},
    Flag{"isa", kString, kDone, "Baton", "the best", "Numeric profile: portable, avx2 or avx512"},
    Flag{"onednn", kBool, kDone, "Baton", "true", "Let oneDNN serve wide matmuls where it gives the same bits"},
    Flag{"log-level", kString, kDone, "Baton", "info", "debug, info, warning or error"},
};

constexpr std::array<std::pair<std::string_view, std::string_view>, 17> kShort{{
    {"-tp", "tensor-parallel-size"},
    {"-pp", "pipeline-parallel-size"},
    {"-dp", "data-parallel-size"},
    {"-dpr", "data-parallel-start-rank"},
    {"-dpn", "data-parallel-rank"},
    {"-dpl", "data-parallel-size-local"},
    {"-dpa", "data-parallel-address"},
    {"-dpp", "data-parallel-rpc-port"},
    {"-dcp", "decode-context-parallel-size"},
    {"-pcp", "prefill-context-parallel-size"},
    {"-asc", "api-server-count"},
    {"-q", "quantization"},
    {"-cc", "compilation-config"},
    {"-sc", "speculative-config"},
    {"-ac", "attention-config"},
    {"-n", "nnodes"},
    {"-r", "node-rank"},
}};

}  // namespace

std::span<const Flag> serve_flags() { return kFlags; }

const Flag* find_flag(std::string_view name) {
  for (const auto& flag : kFlags) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

std::string_view short_form(std::string_view token) {
  for (const auto& [short_name, name] : kShort) {
    if (short_name == token) return name;
  }
  return {};
}

}  // namespace baton::apps
