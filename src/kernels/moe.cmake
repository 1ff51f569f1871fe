list(APPEND kernel_sources router.cc mixing.cc mixing_ref.cc mixing_avx2.cc mixing_avx512.cc)
