baton_test(NAME tokenizer_test SOURCES
    tokenizer/detokenizer_test.cc
    tokenizer/golden_test.cc
    tokenizer/kimi_tokenizer_test.cc
    tokenizer/llama_cpp_test.cc
    tokenizer/tokenizer_test.cc
    tokenizer/unicode_regex_test.cc
  DEPS baton_text)
baton_bench(NAME tokenizer_bench SOURCES tokenizer/tokenizer_bench.cc DEPS baton_text)
target_compile_definitions(tokenizer_bench PRIVATE BATON_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
baton_fuzz(NAME tokenizer_json_fuzz SOURCES tokenizer/tokenizer_json_fuzz.cc DEPS baton_text)
baton_fuzz(NAME gguf_tokenizer_fuzz SOURCES tokenizer/gguf_tokenizer_fuzz.cc DEPS baton_text)
baton_fuzz(NAME sentencepiece_fuzz SOURCES tokenizer/sentencepiece_fuzz.cc DEPS baton_text)
baton_fuzz(NAME tiktoken_fuzz SOURCES tokenizer/tiktoken_fuzz.cc DEPS baton_text)
