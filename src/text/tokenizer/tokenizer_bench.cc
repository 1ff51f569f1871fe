// MB/s of encode and decode. BATON_SMOLLM2=/path/to/model.gguf and BATON_KIMI=/folder/of/tiktoken.model give real
// vocabularies; else the small test ones.
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer/gguf_for_test.h"
#include "text/tokenizer/test_support.h"

namespace {

using namespace baton::text;

constexpr std::string_view kEnglish =
    "The engine keeps a table of blocks for each sequence, and a request that shares its beginning with an earlier one "
    "doesn't compute it again. In 2024 we measured 1,024 requests; most of them (87%) were answered in under 50 ms.\n";
constexpr std::string_view kChinese =
    "推理引擎为每个序列维护一张块表，前缀相同的请求不会重复计算。2024年我们测量了1024个请求，其中大多数在50毫秒内得到回"
    "答。\n";
constexpr std::string_view kCode =
    "for (size_t i = 0; i < blocks.size(); ++i) {\n\tif (blocks[i].refs == 0) free_list.push_back(blocks[i].id);\n}\n";

std::unique_ptr<Tokenizer> load(const std::string& pre) {
  if (pre == "kimi") {
    const char* folder = std::getenv("BATON_KIMI");
    auto loaded = load_tokenizer_folder(folder ? folder : tokenizer_data("kimi_tiktoken"));
    return loaded ? std::move(*loaded) : nullptr;
  }
  const char* path = std::getenv("BATON_SMOLLM2");
  auto data = path ? GgufForTest::read(path) : gguf_form(read_json(tokenizer_data("smollm/tokenizer.json")), "smollm");
  data.pre = pre;
  auto made = make_gguf_tokenizer(data);
  return made ? std::move(*made) : nullptr;
}

void encode(benchmark::State& state, std::string_view sentence, const std::string& pre) {
  const auto tokenizer = load(pre);
  std::string text;
  while (text.size() < 1 << 20) text += sentence;
  size_t tokens = 0;
  for (auto _ : state) tokens = tokenizer->encode(text, {}).size();
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["bytes/token"] = static_cast<double>(text.size()) / static_cast<double>(tokens);
}

void decode_stream(benchmark::State& state) {
  const auto tokenizer = load("smollm");
  std::string text;
  while (text.size() < 1 << 20) text += kEnglish;
  const auto ids = tokenizer->encode(text, {});
  for (auto _ : state) {
    Detokenizer detokenizer(*tokenizer, true);
    for (const auto id : ids) benchmark::DoNotOptimize(detokenizer.push(id));
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * ids.size()));
}

void load_vocabulary(benchmark::State& state, const std::string& pre) {
  for (auto _ : state) benchmark::DoNotOptimize(load(pre));
}

BENCHMARK_CAPTURE(encode, english_smollm, kEnglish, "smollm");
BENCHMARK_CAPTURE(encode, chinese_smollm, kChinese, "smollm");
BENCHMARK_CAPTURE(encode, code_smollm, kCode, "smollm");
BENCHMARK_CAPTURE(encode, english_llama3, kEnglish, "llama-bpe");
BENCHMARK_CAPTURE(encode, chinese_llama3, kChinese, "llama-bpe");
BENCHMARK_CAPTURE(encode, english_deepseek3, kEnglish, "deepseek-v3");
BENCHMARK_CAPTURE(encode, chinese_deepseek3, kChinese, "deepseek-v3");
BENCHMARK_CAPTURE(encode, english_kimi, kEnglish, "kimi");
BENCHMARK_CAPTURE(encode, chinese_kimi, kChinese, "kimi");
BENCHMARK_CAPTURE(encode, code_kimi, kCode, "kimi");
BENCHMARK(decode_stream);
BENCHMARK_CAPTURE(load_vocabulary, smollm, "smollm")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(load_vocabulary, kimi, "kimi")->Unit(benchmark::kMillisecond);

}  // namespace
