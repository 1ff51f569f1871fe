baton_test(NAME moe_test SOURCES router_test.cc mixing_test.cc DEPS baton_kernels)
