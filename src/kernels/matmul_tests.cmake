baton_test(NAME matmul_test
  SOURCES activation_test.cc matmul_bf16_test.cc matmul_test.cc matmul_groups_test.cc matmul_invariance_test.cc
  matmul_onednn_test.cc matmul_scaled_test.cc packed_matrix_test.cc
  DEPS baton_kernels)
add_executable(matmul_bench matmul_bench.cc matmul_peak.cc)
target_link_libraries(matmul_bench PRIVATE baton_options baton_kernels)
