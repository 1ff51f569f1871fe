#!/usr/bin/env bash
# Measures Baton beside llama.cpp, in turn, and writes docs/perf/llama_cpp.md. Installs llama.cpp from PyPI first
# (install_llama_cpp.sh). Options go to llama_cpp.py (--help): `--model Q4_1 --threads 1 --load decode` is a short part.
# BATON_COMPARE_PROCESS=1 leaves the servers out.
# BATON_COMPARE names the folder for everything that is installed and made (default ~/.cache/baton/compare; 3 GB).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${BATON_COMPARE:-${XDG_CACHE_HOME:-$HOME/.cache}/baton/compare}
mkdir -p "$folder"
[ -n "${BATON_COMPARE_NO_BUILD:-}" ] || "$here/../../tools/build.sh" release baton load_server
served=${BATON_COMPARE_PROCESS:+--no-server}
programs=$("$here/install_llama_cpp.sh" "$folder/llama.cpp" $served)
python=$folder/python/bin/python
[ -x "$python" ] || python3 -m venv "$folder/python"
"$python" -c 'import gguf, numpy' 2>/dev/null || "$folder/python/bin/pip" install --quiet gguf numpy
model=$("$here/../../tools/get_smollm2.sh")
exec "$python" "$here/llama_cpp.py" --llama "$programs" --version "$(cat "$folder/llama.cpp/version")" \
  --folder "$folder" --smollm2 "$model" $served "$@"
