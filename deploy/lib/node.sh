# One host's part of a deployment: the command that serves it. Sourced by deploy/run.
#
# A deployment's functions (prefill and decode, or serve) set, of their role:
#   start       launcher: a process per data-parallel rank; direct: a process per host
#   groups      independent data-parallel groups; hosts: hosts of each
#   dp tp pp pcp dcp; partition: layers of each stage
#   flags       of every size; real_flags: limits of the real thing

# describe_role ROLE: those variables, with what follows from them.
describe_role() {
  start=direct groups=1 hosts=1 dp=1 tp=1 pp=1 pcp=1 dcp=1 partition='' flags=() real_flags=()
  "$1"
  if [ "$SIZE" = one ]; then
    tp=1 pp=1 pcp=1 dcp=1 partition=''
    if [ "$start" = launcher ]; then dp=$hosts; else hosts=1 dp=1; fi
  fi
  nodes=$((groups * hosts))
  # Ranks of one group on one of its hosts: replicas under the launcher, pipeline stages (or all replicas) otherwise.
  if [ "$start" = launcher ]; then
    local_dp=$((dp / hosts)) local_ranks=$((dp / hosts * pp * pcp * tp))
  else
    local_dp=$dp local_ranks=$((dp * pp * pcp * tp / hosts))
  fi
}

# address_of ROLE NODE: of the real hosts, or loopback.
address_of() {
  [ "$SIZE" = real ] || { echo 127.0.0.1; return; }
  local list=PREFILL_HOSTS
  [ "$1" = decode ] && list=DECODE_HOSTS
  [ "$1" = serve ] && list=SERVE_HOSTS
  local addresses=(${!list-})
  [ "${#addresses[@]}" -eq "$nodes" ] ||
    fail "$list must name the $nodes $1 hosts of $name, separated by spaces; it names ${#addresses[@]}"
  echo "${addresses[$2]}"
}

# Ports. Hosts of their own all use the guides' ones; on one host all lie in the 4000 from BASE_PORT, below those that
# the kernel hands out: each node has a hundred for its API, each group two hundred for its hand-off.
port_base() {  # port_base ROLE NODE
  [ "$SIZE" = real ] && { echo 7100; return; }
  echo $((base_port + $(role_number "$1") * 1000 + 100 * $2))
}
kv_port() {  # kv_port ROLE GROUP
  local first=${kv_port_prefill-}
  [ "$1" = decode ] && first=$kv_port_decode
  [ "$SIZE" = real ] || first=$((base_port + 2000 + $(role_number "$1") * 1000))
  echo $((first + 200 * $2))
}
meeting_port() {  # meeting_port ROLE GROUP PORT: the given one on hosts of their own
  [ "$SIZE" = real ] && { echo "$3"; return; }
  echo $((base_port + 3900 + $(role_number "$1") * 50 + $2))
}
role_number() { if [ "$1" = decode ]; then echo 1; else echo 0; fi; }
# has_api NODE: a node above 0 of a group that is one engine has none.
has_api() { [ "$start" = launcher ] || [ $(($1 % hosts)) -eq 0 ]; }
api_ports() {  # api_ports ROLE NODE
  local base count=1
  base=$(port_base "$1" "$2")
  [ "$start" = launcher ] && count=$local_dp
  has_api "$2" && seq "$base" $((base + count - 1))
  return 0
}

kv_config() {  # kv_config ROLE GROUP
  local role=kv_producer
  [ "$1" = decode ] && role=kv_consumer
  printf '{"kv_connector":"%s","kv_role":"%s","kv_port":"%s","engine_id":"%s%s","kv_connector_extra_config":%s}' \
    "$connector" "$role" "$(kv_port "$1" "$2")" "$1" "$2" "$(sizes_json)"
}
# What the guides write there; Baton's hand-shake tells it anyway.
sizes_json() {
  (
    describe_role prefill
    printf '{"prefill":{"dp_size":%s,"tp_size":%s,"pp_size":%s,"pcp_size":%s,"dcp_size":%s},' $dp $tp $pp $pcp $dcp
    describe_role decode
    printf '"decode":{"dp_size":%s,"tp_size":%s,"pp_size":%s,"pcp_size":%s,"dcp_size":%s}}' $dp $tp $pp $pcp $dcp
  )
}

# engine_flags ROLE NODE: into the array `engine`, all of an engine's flags but its port and place among replicas.
engine_flags() {
  engine=(--host 0.0.0.0 --quantization ascend --seed 1024 --served-model-name "$served_name" --trust-remote-code
    --pipeline-parallel-size "$pp" --prefill-context-parallel-size "$pcp" --decode-context-parallel-size "$dcp"
    "${flags[@]}")
  [ "$SIZE" = one ] || engine+=(--enable-expert-parallel)
  if [ "$SIZE" = real ]; then
    engine+=("${real_flags[@]}")
  else
    engine+=(--max-model-len "${tiny_longest:-16384}" --max-num-batched-tokens 1024 --max-num-seqs 8
      --kv-cache-memory-bytes 256M)
    engine[1]=127.0.0.1
  fi
  [ "$1" = serve ] || engine+=(--kv-transfer-config "$(kv_config "$1" $(($2 / hosts)))")
}

# The environment of a node's processes.
node_environment() {  # node_environment ROLE NODE
  unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY VLLM_PP_LAYER_PARTITION
  export VLLM_HOST_IP PYTHONHASHSEED=0
  VLLM_HOST_IP=$(address_of "$1" "$2")
  [ -z "$partition" ] || export VLLM_PP_LAYER_PARTITION=$partition
}

# run_node ROLE NODE: becomes the node's process. In $work/ROLE-NODE it leaves its template and logs.
run_node() {
  local role=$1 node=$2 folder=$work/$1-$2 group first
  describe_role "$role"
  [ "$node" -lt "$nodes" ] || fail "$name has $nodes $role hosts: 0 to $((nodes - 1))"
  group=$((node / hosts)) first=$((node / hosts * hosts))
  engine_flags "$role" "$node"
  node_environment "$role" "$node"
  mkdir -p "$folder"
  cd "$folder"
  if [ "$start" = launcher ]; then
    write_template
    exec "$baton" launch --dp-size "$dp" --tp-size "$tp" --dp-size-local "$local_dp" \
      --dp-rank-start $((node % hosts * local_dp)) --dp-address "$(address_of "$role" "$first")" \
      --dp-rpc-port "$(meeting_port "$role" "$group" 12321)" \
      --vllm-start-port "$(port_base "$role" "$node")"
  fi
  local place=(--port "$(port_base "$role" "$node")" --data-parallel-size "$dp" --tensor-parallel-size "$tp")
  if [ "$hosts" -gt 1 ]; then
    place+=(--nnodes "$hosts" --node-rank $((node % hosts)) --master-addr "$(address_of "$role" "$first")"
      --master-port "$(meeting_port "$role" "$group" 29501)")
    has_api "$node" || place+=(--headless)
  fi
  exec "$deploy/../shim/vllm" serve "$model" "${place[@]}" "${engine[@]}"
}

# The script of one data-parallel rank, of the launcher's seven arguments.
write_template() {
  {
    echo '#!/usr/bin/env bash'
    echo 'export ASCEND_RT_VISIBLE_DEVICES=$1'
    printf '%q serve %q --port "$2" --data-parallel-size "$3" --data-parallel-size-local 1 --data-parallel-rank "$4" ' \
      "$deploy/../shim/vllm" "$model"
    printf -- '--data-parallel-address "$5" --data-parallel-rpc-port "$6" --tensor-parallel-size "$7"'
    local word
    for word in "${engine[@]}"; do printf " '%s'" "${word//\'/\'\\\'\'}"; done
    echo
  } > run_dp_template.sh
}

# run_proxy: becomes the proxy in front of all API servers.
run_proxy() {
  local role node port lists=() hosts_of=() ports_of=()
  for role in prefill decode; do
    describe_role "$role"
    hosts_of=() ports_of=()
    for ((node = 0; node < nodes; ++node)); do
      for port in $(api_ports "$role" "$node"); do
        hosts_of+=("$(address_of "$role" "$node")")
        ports_of+=("$port")
      done
    done
    [ "$role" = prefill ] && role=prefiller || role=decoder
    lists+=("--$role-hosts" "${hosts_of[@]}" "--$role-ports" "${ports_of[@]}")
  done
  local mode=()
  [ "${proxy_mode-}" = layerwise ] && mode=(--mode layerwise)
  exec "$baton" proxy "${mode[@]}" --host "$proxy_host" --port "$proxy_port" "${lists[@]}"
}
