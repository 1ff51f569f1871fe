baton_test(NAME math_test SOURCES math_test.cc DEPS baton_kernels)
baton_test(NAME elementwise_test SOURCES elementwise_test.cc DEPS baton_kernels)
baton_test(NAME attention_test SOURCES attention_test.cc DEPS baton_kernels)
baton_test(NAME latent_test SOURCES latent_cache_test.cc latent_attention_test.cc DEPS baton_kernels)
baton_test(NAME indexer_test SOURCES indexer_test.cc DEPS baton_kernels)
add_executable(mla_forms_bench mla_forms_bench.cc)
target_link_libraries(mla_forms_bench PRIVATE baton_options baton_kernels)
baton_test(NAME context_test SOURCES attention_context_test.cc latent_context_test.cc indexer_context_test.cc
  DEPS baton_kernels)
