baton_test(NAME tokenizer_test SOURCES
    tokenizer/golden_test.cc
    tokenizer/llama_cpp_test.cc
    tokenizer/unicode_regex_test.cc
  DEPS baton_text)
