#!/usr/bin/env bash
# Builds llama.cpp for this machine's processor out of the source package of PyPI `llama-cpp-python` (VERSION=x.y.z chooses
# one), and prints the folder with llama_side (llama_side.cc over llama.cpp's library) and, unless told --no-server, its
# own llama-server. Nothing of it enters the repository. Takes some minutes once; the folder stays for later runs.
#   install_llama_cpp.sh FOLDER [--no-server]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?install_llama_cpp.sh FOLDER [--no-server]}
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
build=$folder/build
if [ ! -f "$build/build.ninja" ]; then
  # Static, so that each program is one file; the processor's own instructions; no web page, no TLS.
  cmake -S "$folder/source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang-19 \
    -DCMAKE_CXX_COMPILER=clang++-19 -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF >> "$log" 2>&1 || fail "configuring"
fi
ninja -C "$build" llama ggml >> "$log" 2>&1 || fail "building its library"
side=$build/bin/llama_side
if [ ! "$side" -nt "$here/llama_side.cc" ]; then
  mkdir -p "$build/bin"
  clang++-19 -O2 -std=c++20 -I"$folder/source/include" -I"$folder/source/ggml/include" "$here/llama_side.cc" \
    "$build/src/libllama.a" "$build/ggml/src/libggml.a" "$build/ggml/src/libggml-cpu.a" "$build/ggml/src/libggml-base.a" \
    -pthread -ldl -lm -o "$side" >> "$log" 2>&1 || fail "llama_side"
fi
[ "${2:-}" = --no-server ] || ninja -C "$build" llama-server >> "$log" 2>&1 || fail "building llama-server"
echo "$build/bin"
