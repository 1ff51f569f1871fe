# All of a deployment on this machine, over loopback: started, waited for, asked one question, kept serving. Sourced by
# deploy/run.

pids=() labels=()
stop_all() {
  trap - EXIT INT TERM
  # The proxy first, so that it stops sending to engines that are going.
  local i
  for ((i = ${#pids[@]} - 1; i >= 0; --i)); do kill "${pids[$i]}" 2> /dev/null || true; done
  for i in "${pids[@]}"; do wait "$i" 2> /dev/null || true; done
}

start_part() {  # start_part LABEL FUNCTION ARGUMENTS...
  local label=$1
  shift
  ("$@") > "$work/$label.log" 2>&1 &
  pids+=($!) labels+=("$label")
}

# Every part must live while it is waited for.
check_parts() {
  local i
  for i in "${!pids[@]}"; do
    kill -0 "${pids[$i]}" 2> /dev/null && continue
    echo "deploy: ${labels[$i]} ended. $work/${labels[$i]}.log ends:" >&2
    tail -n 15 "$work/${labels[$i]}.log" >&2
    exit 1
  done
}

wait_healthy() {  # wait_healthy LABEL PORT
  local begin=$SECONDS
  until curl -fsS --noproxy '*' -m 5 -o /dev/null "http://127.0.0.1:$2/health" 2> /dev/null; do
    check_parts
    [ $((SECONDS - begin)) -lt "$start_seconds" ] || fail "$1 (port $2) was not ready within $start_seconds s: $work/$1.log"
    sleep 0.2
  done
  check_parts  # it may be another server that answers at this port
}

# What answers before anything is started is not ours.
check_port_free() {  # check_port_free PORT
  ! (exec 3<> "/dev/tcp/127.0.0.1/$1") 2> /dev/null || fail "port $1 is taken by another process; PROXY_PORT or BASE_PORT chooses others"
}

wait_role() {  # wait_role ROLE
  local node port
  describe_role "$1"
  for ((node = 0; node < nodes; ++node)); do
    for port in $(api_ports "$1" "$node"); do wait_healthy "$1-$node" "$port"; done
  done
}

start_role() {  # start_role ROLE
  local node
  describe_role "$1"
  echo "$1: $nodes process groups of $local_ranks ranks (dp$dp pp$pp pcp$pcp tp$tp dcp$dcp in $groups groups)"
  for ((node = 0; node < nodes; ++node)); do start_part "$1-$node" run_node "$1" "$node"; done
}

run_all() {
  local role began=$SECONDS roles=(prefill decode)
  declare -F serve > /dev/null && roles=(serve)
  trap stop_all EXIT
  trap 'echo; echo "Stopping."; exit 0' INT TERM
  check_port_free "$([ "${roles[0]}" = prefill ] && echo "$proxy_port" || port_base serve 0)"
  echo "logs: $work"
  for role in "${roles[@]}"; do start_role "$role"; done
  for role in "${roles[@]}"; do wait_role "$role"; done
  local url=http://127.0.0.1:$(port_base serve 0)
  if [ "${roles[0]}" = prefill ]; then
    start_part proxy run_proxy
    wait_healthy proxy "$proxy_port"
    url=http://127.0.0.1:$proxy_port
  fi
  echo "ready after $((SECONDS - began)) s: $url"
  "$baton" ask --url "$url" --max-tokens 24 "$question" || fail "no answer; the logs are in $work"
  [ "$once" -eq 0 ] || return 0
  echo "Serving $served_name at $url until Ctrl-C."
  # Whichever ends first ends the deployment.
  wait -n "${pids[@]}" || true
  check_parts
}
