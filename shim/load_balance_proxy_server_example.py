#!/usr/bin/env python3
"""Starts `baton proxy`, which takes this name's flags.

Works where it lies, linked or copied. Which baton: $BATON_BINARY, else the build of the checkout that this file is in,
else `baton` on PATH, else the `vllm` on PATH that is Baton's shim.
"""
import os
import shutil
import sys


def command():
    if named := os.environ.get("BATON_BINARY"):
        return named
    shim = os.path.dirname(os.path.realpath(__file__))
    built = os.path.join(os.path.dirname(shim), "build", "release", "src", "apps", "baton")
    if os.access(built, os.X_OK):
        return built
    if found := shutil.which("baton"):
        return found
    found = shutil.which("vllm")
    if found and os.path.exists(os.path.join(os.path.dirname(os.path.realpath(found)), 'load_balance_proxy_server_example.py')):
        return found
    sys.exit("load_balance_proxy_server_example.py: no baton found: build it, put it or the shim folder on PATH, or name it in BATON_BINARY")


if __name__ == "__main__":
    program = command()
    try:
        os.execv(program, [program, "proxy", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"load_balance_proxy_server_example.py: {program}: {error.strerror}")
