list(APPEND kernel_sources
  kv_view.cc attention.cc lane_partials.cc attention_ref.cc attention_avx2.cc attention_avx512.cc
  elementwise.cc elementwise_ref.cc elementwise_avx2.cc elementwise_avx512.cc
  latent_cache.cc latent_attention.cc latent_ref.cc latent_avx2.cc latent_avx512.cc 
  indexer.cc indexer_select.cc indexer_candidates.cc indexer_top_k.cc
  math.cc math_ref.cc math_avx2.cc math_avx512.cc)
