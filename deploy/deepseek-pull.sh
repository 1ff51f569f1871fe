# DeepSeek-R1 in W8A8, 2P1D: two prefill hosts, each a group of its own; one decode group over two hosts. Decode pulls
# a prompt's KV once it is computed.
checkpoint=deepseek_r1_w8a8
served_name=ds_r1
connector=MooncakeConnectorV1
kv_port_prefill=36000 kv_port_decode=38000
prefill() {
  start=launcher groups=2 hosts=1 dp=2
  case $SIZE in real) tp=8 ;; *) tp=2 ;; esac
  real_flags=(--max-model-len 40000 --max-num-batched-tokens 16384 --max-num-seqs 8 --gpu-memory-utilization 0.9)
  flags=(--enforce-eager --no-enable-prefix-caching --additional-config '{"enable_shared_expert_dp":true}')
}
decode() {
  start=launcher groups=1 hosts=2
  case $SIZE in real) dp=32 ;; *) dp=4 ;; esac
  real_flags=(--max-model-len 40000 --max-num-batched-tokens 256 --max-num-seqs 40 --gpu-memory-utilization 0.94)
  flags=(--no-enable-prefix-caching --additional-config '{"finegrained_tp_config":{"lmhead_tensor_parallel_size":16}}')
}
