#!/usr/bin/env bash
# tools/fuzz.sh [SECONDS [TARGET ...]]: builds the fuzz targets and runs each for SECONDS (600) from the repository's
# seeds, one after the other on one core. Prints a table; exits 1 if any input crashed, hung, leaked or took too much
# memory. Corpora are kept in build/fuzz/corpus and findings in build/fuzz/findings.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { sed -n 2,4p "$0" >&2; exit 2; }
declare -A max_len=([wire_fuzz]=4096 [ordered_json_fuzz]=4096 [gguf_fuzz]=8192 [safetensors_fuzz]=8192 [tokenizer_json_fuzz]=24576
  [gguf_tokenizer_fuzz]=16384 [sentencepiece_fuzz]=20480 [tiktoken_fuzz]=8192 [http_request_fuzz]=8192 [http_response_fuzz]=4096
  [handoff_fuzz]=2048 [sse_fuzz]=4096 [chat_template_fuzz]=4096 [chat_format_fuzz]=4096)

build=build/fuzz
tools/install_packages.sh
cmake --preset fuzz >/dev/null
mapfile -t targets < <(ninja -C "$build" -t targets all | grep -oP '^(?!cmake_)\w+_fuzz(?=: phony)')
if ! grep -q http_request_fuzz <<<"${targets[*]}"; then
  echo "Without http_request_fuzz: its judge is not installed (apt-get install libhttp-parser-dev)." >&2
fi
if [ $# -gt 1 ]; then targets=("${@:2}"); fi
tools/build.sh fuzz "${targets[@]}" wire_fuzz_seeds weights_fuzz_seeds member_fuzz_seeds meeting_fuzz_seeds
mkdir -p "$build/corpus" "$build/findings" "$build/logs"
rm -rf "$build/seeds"
python3 tools/fuzz_seeds.py "$build" "$build/seeds"

failed=0
TIMEFORMAT=%0U  # of `time`: seconds of CPU, which say more than seconds where others use the machine too
row='%-20s %8s %8s %12s %8s %9s %9s\n'
# shellcheck disable=SC2059
printf "$row" target seconds cpu executions edges features findings
for target in "${targets[@]}"; do
  mkdir -p "$build/corpus/$target" "$build/seeds/$target"
  log=$build/logs/$target.log
  options=(-max_total_time="$seconds" -max_len="${max_len[$target]:-4096}" -rss_limit_mb=3000 -timeout=20
    -print_final_stats=1 -artifact_prefix="$build/findings/$target-")
  if [ -s "$build/seeds/$target.dict" ]; then options+=(-dict="$build/seeds/$target.dict"); fi
  program=$(find "$build/src" -type f -name "$target" -perm -u+x)
  started=$SECONDS
  code=0
  cpu=$({ time "$program" "${options[@]}" "$build/corpus/$target" "$build/seeds/$target" >"$log" 2>&1; } 2>&1) || code=$?
  finding=none
  if [ "$code" != 0 ]; then
    failed=1
    finding=$(grep -oP 'Test unit written to \K\S+' "$log" | tail -n 1) || finding="exit $code"
  fi
  executions=$(grep -oP 'stat::number_of_executed_units: *\K\d+' "$log" | tail -n 1) || executions='?'
  edges=$(grep -oP 'cov: \K\d+' "$log" | tail -n 1) || edges='?'
  features=$(grep -oP 'ft: \K\d+' "$log" | tail -n 1) || features='?'
  # shellcheck disable=SC2059
  printf "$row" "$target" $((SECONDS - started)) "$cpu" "$executions" "$edges" "$features" "$finding"
done
if [ "$failed" = 1 ]; then
  echo "Findings (above). Reproduce: the target's program with the file as its argument; logs in $build/logs." >&2
fi
exit "$failed"
