baton_test(NAME matmul_test
  SOURCES activation_test.cc matmul_test.cc matmul_invariance_test.cc matmul_onednn_test.cc packed_matrix_test.cc
  DEPS baton_kernels)
