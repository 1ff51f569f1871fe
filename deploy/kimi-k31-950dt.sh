# Kimi K3.1 Pro in W4A8_MXFP as on 950DT, 4P4D: prefill PP4 with PCP alone, decode with as many context as tensor ranks.
# fp8 caches in blocks of 1536.
checkpoint=kimi_k31_w4a8_mxfp
served_name=kimi-k3.1-pro
connector=MooncakeConnectorV2
kv_port_prefill=33100 kv_port_decode=33500
longest=140000 tiny_longest=16384
caches=(--kv-cache-dtype fp8 --attention_config.indexer_kv_dtype fp8 --block-size 1536
  --cp-kv-cache-interleave-size 1536)
parsers=(--tokenizer-mode kimi_k3 --tool-call-parser kimi_k3 --reasoning-parser kimi_k3 --enable-auto-tool-choice)
prefill() {
  start=direct groups=1 hosts=4 pp=4 partition=24,24,24,21
  case $SIZE in real) pcp=8 ;; *) pcp=4 ;; esac
  real_flags=(--max-model-len "$longest" --max-num-batched-tokens 16384 --max-num-seqs 64
    --gpu-memory-utilization 0.90)
  flags=(--enforce-eager --enable-prefix-caching "${caches[@]}" "${parsers[@]}")
}
decode() {
  start=launcher groups=1
  case $SIZE in real) hosts=4 dp=4 tp=8 dcp=8 ;; *) hosts=2 dp=2 tp=4 dcp=4 ;; esac
  real_flags=(--max-model-len "$longest" --max-num-batched-tokens 768 --max-num-seqs 64 --gpu-memory-utilization 0.92)
  flags=(--enable-prefix-caching "${caches[@]}" "${parsers[@]}")
}
