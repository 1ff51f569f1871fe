# Kimi K3.1 Pro in W4A8 as on A3, 4P4D: one prefill engine of four pipeline stages, one a host, whose context is shared
# by PCP; four decode replicas, one a host, whose context is shared by DCP. int8 caches in blocks of 768.
checkpoint=kimi_k31_w4a8
served_name=kimi-k3.1-pro
connector=MooncakeConnectorV2
kv_port_prefill=33100 kv_port_decode=33500
longest=204800 tiny_longest=16384
caches=(--kv-cache-dtype int8 --attention_config.indexer_kv_dtype int8 --block-size 768)
parsers=(--tokenizer-mode kimi_k3 --tool-call-parser kimi_k3 --reasoning-parser kimi_k3 --enable-auto-tool-choice)
prefill() {
  start=direct groups=1 hosts=4 pp=4 partition=25,25,24,19
  case $SIZE in real) pcp=4 tp=4 ;; *) pcp=2 tp=2 ;; esac
  real_flags=(--max-model-len "$longest" --max-num-batched-tokens 8192 --max-num-seqs 12 --gpu-memory-utilization 0.90)
  flags=(--enforce-eager --enable-prefix-caching "${caches[@]}" "${parsers[@]}")
}
decode() {
  start=launcher groups=1
  case $SIZE in real) hosts=4 dp=4 tp=16 dcp=16 ;; *) hosts=2 dp=2 tp=4 dcp=4 ;; esac
  real_flags=(--max-model-len "$longest" --max-num-batched-tokens 8192 --max-num-seqs 12 --gpu-memory-utilization 0.80)
  flags=(--cp-kv-cache-interleave-size 768 --enable-prefix-caching "${caches[@]}" "${parsers[@]}")
}
