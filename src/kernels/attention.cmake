list(APPEND kernel_sources
  kv_view.cc attention.cc attention_ref.cc attention_avx2.cc attention_avx512.cc
  elementwise.cc elementwise_ref.cc elementwise_avx2.cc elementwise_avx512.cc
  math.cc math_ref.cc math_avx2.cc math_avx512.cc)
