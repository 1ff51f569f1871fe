list(APPEND kernel_sources kda.cc kda_ref.cc kda_avx2.cc kda_avx512.cc
  gated.cc gated_ref.cc gated_avx2.cc gated_avx512.cc)
