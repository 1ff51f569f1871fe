# The quantised matmul's part of the room. oneDNN runs its threads through libgomp, whose count every worker sets to one.
list(APPEND kernel_sources
  activation_avx2.cc activation_avx512.cc activation_buffer.cc activation_ref.cc
  bf16_method.cc gguf_block.cc matmul.cc matmul_avx2.cc matmul_avx512.cc matmul_bf16_avx512.cc
  matmul_channel_avx2.cc matmul_channel_avx512.cc matmul_fp8_avx2.cc matmul_fp8_avx512.cc matmul_groups.cc matmul_onednn.cc
  matmul_product.cc matmul_ref.cc packed_matrix.cc panel_pack.cc panel_pack_lines.cc panel_unpack.cc
  weight_arena.cc)
target_link_libraries(baton_dnnl INTERFACE gomp)
