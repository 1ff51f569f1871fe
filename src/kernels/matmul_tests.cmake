baton_test(NAME matmul_test
  SOURCES activation_test.cc matmul_test.cc matmul_groups_test.cc matmul_invariance_test.cc
  matmul_onednn_test.cc matmul_scaled_test.cc packed_matrix_test.cc panel_pack_test.cc
  DEPS baton_kernels)
_baton_isa_flags(matmul_peak_avx512.cc)
add_executable(matmul_bench matmul_bench.cc matmul_peak.cc matmul_peak_avx512.cc)
target_link_libraries(matmul_bench PRIVATE baton_options baton_kernels)
# What the machine can do at most, for benches of other rooms too.
add_library(baton_machine_peak STATIC matmul_peak.cc matmul_peak_avx512.cc)
target_link_libraries(baton_machine_peak PRIVATE baton_options)
target_include_directories(baton_machine_peak PUBLIC ${PROJECT_SOURCE_DIR}/src)
