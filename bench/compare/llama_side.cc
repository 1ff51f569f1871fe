// llama.cpp in process as a side of a comparison: load_server's words (bench/engine/load_server.cc), its greedy
// requests of random tokens and its measure of rates. install_llama_cpp.sh builds it against llama.cpp's own library;
// no part of Baton's build.
//   llama_side MODEL THREADS
//   llama_side --quantize IN OUT q4_0|q8_0|bf16     the embedding table and the output matrix in q8_0 (bf16: bf16)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ggml-cpu.h"
#include "llama.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

[[noreturn]] void stop(const char* what) {
  std::fprintf(stderr, "llama_side: %s\n", what);
  std::exit(1);
}

int quantize(const char* in, const char* out, const std::string& format) {
  auto params = llama_model_quantize_default_params();
  params.ftype = format == "q4_0"   ? LLAMA_FTYPE_MOSTLY_Q4_0
                 : format == "q8_0" ? LLAMA_FTYPE_MOSTLY_Q8_0
                                    : LLAMA_FTYPE_MOSTLY_BF16;
  params.output_tensor_type = params.token_embedding_type = format == "bf16" ? GGML_TYPE_BF16 : GGML_TYPE_Q8_0;
  params.allow_requantize = true;
  return static_cast<int>(llama_model_quantize(in, out, &params));
}

class Side {
 public:
  Side(const char* path, int threads) : threads_(threads) {
    model_ = llama_model_load_from_file(path, llama_model_default_params());
    if (model_ == nullptr) stop("the model can't be loaded");
    vocab_ = llama_vocab_n_tokens(llama_model_get_vocab(model_));
    // Threads that stay from step to step.
    auto pool = ggml_threadpool_params_default(threads);
    pool_ = ggml_threadpool_new(&pool);
  }

  // Prints the rates of `requests` at once.
  void measure(int requests, int prompt, int output) {
    open(requests, prompt + output);
    llama_memory_clear(llama_get_memory(context_), false);
    std::mt19937_64 random(++seed_);
    std::vector<llama_token> next(static_cast<size_t>(requests));
    const auto began = Clock::now();
    for (int r = 0; r < requests; r += std::max(1, kBatch / prompt)) {
      // Whole prompts, as many as a batch holds; a longer one in pieces.
      const int until = std::min(requests, r + std::max(1, kBatch / prompt));
      batch_.n_tokens = 0;
      for (int s = r; s < until; ++s) {
        for (int i = 0; i < prompt; ++i) {
          if (batch_.n_tokens == kBatch) decode();
          add(static_cast<llama_token>(random() % static_cast<uint64_t>(vocab_)), i, s, i + 1 == prompt);
          if (i + 1 == prompt) next[static_cast<size_t>(s)] = batch_.n_tokens - 1;
        }
      }
      decode();
      for (int s = r; s < until; ++s) next[static_cast<size_t>(s)] = likeliest(next[static_cast<size_t>(s)]);
    }
    const auto started = Clock::now();
    for (int i = 1; i < output; ++i) {
      for (int s = 0; s < requests; ++s) add(next[static_cast<size_t>(s)], prompt + i - 1, s, true);
      decode();
      for (int s = 0; s < requests; ++s) next[static_cast<size_t>(s)] = likeliest(s);
    }
    const double decoding = seconds(Clock::now() - started);
    std::printf("rates %.3f %.3f\n", requests * prompt / seconds(started - began),
                output > 1 ? requests * (output - 1) / decoding : 0.0);
  }

 private:
  static constexpr int kBatch = 2048;

  // A context of that shape, its cache cut by sequence, as llama.cpp advises where prompts share nothing.
  void open(int requests, int length) {
    if (context_ != nullptr && requests == requests_ && length <= length_) return;
    if (context_ != nullptr) {
      llama_free(context_);
      llama_batch_free(batch_);
    }
    requests_ = requests;
    length_ = (length + 255) / 256 * 256;
    auto params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(requests_ * length_);
    params.n_seq_max = static_cast<uint32_t>(requests_);
    params.n_batch = kBatch;
    params.n_threads = params.n_threads_batch = threads_;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.kv_unified = false;
    context_ = llama_init_from_model(model_, params);
    if (context_ == nullptr) stop("no context");
    llama_attach_threadpool(context_, pool_, pool_);
    batch_ = llama_batch_init(kBatch, 0, 1);
  }

  void add(llama_token token, int position, int sequence, bool logits) {
    const int i = batch_.n_tokens++;
    batch_.token[i] = token;
    batch_.pos[i] = position;
    batch_.n_seq_id[i] = 1;
    batch_.seq_id[i][0] = sequence;
    batch_.logits[i] = logits;
  }
  void decode() {
    if (llama_decode(context_, batch_) != 0) stop("llama_decode failed");
    llama_synchronize(context_);
    batch_.n_tokens = 0;
  }
  // Of the logits of a row of the last batch.
  llama_token likeliest(int row) {
    const float* logits = llama_get_logits_ith(context_, row);
    if (logits == nullptr) stop("no logits");
    return static_cast<llama_token>(std::max_element(logits, logits + vocab_) - logits);
  }

  const int threads_;
  llama_model* model_ = nullptr;
  llama_context* context_ = nullptr;
  ggml_threadpool* pool_ = nullptr;
  llama_batch batch_{};
  int vocab_ = 0, requests_ = 0, length_ = 0;
  uint64_t seed_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  if (argc == 5 && std::strcmp(argv[1], "--quantize") == 0) return quantize(argv[2], argv[3], argv[4]);
  if (argc != 3) stop("usage: llama_side MODEL THREADS | llama_side --quantize IN OUT FORMAT");
  llama_backend_init();
  Side side(argv[1], std::atoi(argv[2]));
  std::printf("ready\n");
  std::fflush(stdout);
  int requests = 0, prompt = 0, output = 0;
  while (std::scanf("%d %d %d", &requests, &prompt, &output) == 3) {
    side.measure(requests, prompt, output);
    std::fflush(stdout);
  }
}
