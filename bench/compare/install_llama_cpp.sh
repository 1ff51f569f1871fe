#!/usr/bin/env bash
# Builds llama.cpp's own llama-batched-bench, llama-server and llama-quantize for this machine's processor, out of the
# source package of PyPI `llama-cpp-python` (VERSION=x.y.z chooses one), and prints the folder they are in. Nothing of
# it enters the repository. Takes some minutes once; the folder stays for later runs.
#   install_llama_cpp.sh [FOLDER, default ~/.cache/baton/compare/llama.cpp]
set -euo pipefail
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/baton/compare/llama.cpp}
programs=(llama-batched-bench llama-server llama-quantize)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
log=$folder/install.log
: >> "$log"
fail() { tail -n 20 "$log" >&2; echo "llama.cpp could not be installed: $1 (all of it: $log)" >&2; exit 1; }

if [ ! -d "$folder/source" ]; then
  work=$(mktemp -d "$folder/download.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: --dest "$work" \
    "llama-cpp-python${VERSION:+==$VERSION}" >> "$log" 2>&1 || fail "the source package"
  tar -xzf "$work"/llama_cpp_python-*.tar.gz -C "$work"
  basename "$work"/llama_cpp_python-*.tar.gz .tar.gz > "$folder/version"
  mv "$work"/llama_cpp_python-*/vendor/llama.cpp "$folder/source"
fi
# Static, so that each program is one file; the processor's own instructions; no web page, no TLS.
cmake -S "$folder/source" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF \
  -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF >> "$log" 2>&1 || fail "configuring"
ninja -C "$folder/build" "${programs[@]}" >> "$log" 2>&1 || fail "building"
echo "$folder/build/bin"
