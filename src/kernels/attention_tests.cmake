baton_test(NAME math_test SOURCES math_test.cc DEPS baton_kernels)
baton_test(NAME elementwise_test SOURCES elementwise_test.cc DEPS baton_kernels)
baton_test(NAME attention_test SOURCES attention_test.cc DEPS baton_kernels)
baton_bench(NAME attention_bench SOURCES attention_bench.cc DEPS baton_kernels)
