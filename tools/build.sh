#!/usr/bin/env bash
# tools/build.sh PRESET [TARGET ...]: configures once, builds, shows the compiler's words only when it fails.
set -euo pipefail
cd "$(dirname "$0")/.."
# Trees in other folders share ccache's objects: the paths it hashes are relative to the tree.
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1}
preset=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if [ ! -f "build/$preset/build.ninja" ]; then
  echo "Configuring build/$preset"
  cmake --preset "$preset" >"$log" 2>&1 || { cat "$log" >&2; echo "Configuring failed (above)." >&2; exit 1; }
fi
echo "Building build/$preset${*:+ ($*)}"
if ! ninja -C "build/$preset" "$@" >"$log" 2>&1; then
  grep -vE '^\[[0-9]+/[0-9]+\]' "$log" | head -n 80 >&2
  echo "The build failed (above); all of it: ninja -C build/$preset" >&2
  exit 1
fi
