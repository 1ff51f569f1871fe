# Kimi-K2.6 in W4A8, 2P1D: two prefill hosts, each a group of its own; one decode group over two hosts.
checkpoint=kimi_k26_w4a8
served_name=kimi_k26
connector=MooncakeConnectorV1
kv_port_prefill=30000 kv_port_decode=30200
parsers=(--tool-call-parser kimi_k2 --reasoning-parser kimi_k2 --enable-auto-tool-choice)
prefill() {
  start=launcher groups=2 hosts=1
  case $SIZE in real) dp=4 tp=4 ;; *) dp=2 tp=2 ;; esac
  real_flags=(--max-model-len 133720 --max-num-batched-tokens 16384 --max-num-seqs 1 --gpu-memory-utilization 0.92)
  flags=(--enforce-eager --no-enable-prefix-caching "${parsers[@]}")
}
decode() {
  start=launcher groups=1 hosts=2
  case $SIZE in real) dp=8 tp=4 ;; *) dp=2 tp=2 ;; esac
  real_flags=(--max-model-len 133720 --max-num-batched-tokens 32 --max-num-seqs 8 --gpu-memory-utilization 0.91)
  flags=(--no-enable-prefix-caching "${parsers[@]}" --additional-config '{"enable_mlapo":true}')
}
