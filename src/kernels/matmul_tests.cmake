baton_test(NAME matmul_test
  SOURCES activation_test.cc matmul_bf16_test.cc matmul_test.cc matmul_groups_test.cc matmul_invariance_test.cc
  matmul_onednn_test.cc matmul_scaled_test.cc packed_matrix_test.cc panel_pack_test.cc
  DEPS baton_kernels)
baton_library(NAME kernel_bench
  SOURCES attention_bench.cc kernel_bench.cc latent_attention_bench.cc latent_context_bench.cc matmul_bench.cc
  DEPS baton_kernels baton_kernel_peak)
