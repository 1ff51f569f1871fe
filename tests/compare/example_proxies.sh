#!/usr/bin/env bash
# Drives our engines with the public example proxies of vLLM-Ascend, in both modes, and prints what was tried and seen.
# They come from the source package of PyPI `vllm-ascend` (VERSION=x.y.z chooses one), are unpacked into a folder that is
# removed at the end, and run in a virtual environment under ~/.cache/baton; nothing of them enters the repository.
# Needs ./check to have built the release (or BATON_BINARY).
set -euo pipefail
cd "$(dirname "$0")/../.."
environment=${XDG_CACHE_HOME:-$HOME/.cache}/baton/example-proxies
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
[ -x "$environment/bin/python" ] || python3 -m venv "$environment"
"$environment/bin/python" -c 'import fastapi, httpx, uvicorn' 2>/dev/null ||
  "$environment/bin/pip" install --quiet fastapi httpx uvicorn
# The package's own build needs an NPU's toolkit, so pip stops there; by then the sources are unpacked, and stay.
mkdir "$folder/unpacked"
TMPDIR="$folder/unpacked" "$environment/bin/pip" download --no-clean --no-deps --no-build-isolation --no-binary :all: \
  --dest "$folder" "vllm-ascend${VERSION:+==$VERSION}" > "$folder/pip.log" 2>&1 || true
examples=$(find "$folder/unpacked" "$folder" -type d -path '*/examples/disaggregated_prefill_v1' | head -1)
if [ -z "$examples" ]; then
  tail -5 "$folder/pip.log"
  echo "the example proxies could not be downloaded"
  exit 1
fi
# One of them asks the package vllm for a logger.
mkdir -p "$folder/stand-in/vllm"
touch "$folder/stand-in/vllm/__init__.py"
printf 'import logging\n\n\ndef init_logger(name):\n    return logging.getLogger(name)\n' > "$folder/stand-in/vllm/logger.py"
echo "example proxies of $(grep -o 'vllm_ascend-[0-9a-z.]*[0-9a-z]' "$folder/pip.log" | sed 's/\.tar$//;s/\.tar\.gz$//' | head -1)"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$folder/stand-in" python3 tests/compare/example_proxies.py \
  "$environment/bin/python" "$examples"
