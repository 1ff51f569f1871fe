baton_test(NAME kda_test SOURCES kda_test.cc gated_test.cc DEPS baton_kernels)
baton_bench(NAME kda_bench SOURCES kda_bench.cc DEPS baton_kernels)
