#!/usr/bin/env bash
# tools/check_source.sh PRESET: rooms include downwards only, headers compile alone, the format is ours, names are in
# house style. PRESET's compile_commands.json tells the compiler's flags.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1

python3 tools/check_layers.py
BATON_PRESET=$preset python3 tools/check_headers.py
git ls-files '*.h' '*.cc' | xargs clang-format-19 --dry-run -Werror
python3 tools/check_names.py "build/$preset"
