# Kimi-K2.6 in W4A8 on one host: four replicas behind one API server (internal load balancing), no hand-off.
checkpoint=kimi_k26_w4a8
served_name=kimi_k26
serve() {
  start=direct
  case $SIZE in real) dp=4 tp=4 ;; *) dp=2 tp=2 ;; esac
  real_flags=(--max-model-len 34816 --max-num-batched-tokens 16384 --max-num-seqs 4 --gpu-memory-utilization 0.87)
  flags=(--no-enable-prefix-caching --tool-call-parser kimi_k2 --reasoning-parser kimi_k2 --enable-auto-tool-choice)
}
