#!/usr/bin/env python3
"""run_against.py SCRIPT: starts an engine, and prefill, decode and proxy, on the small checkpoint; runs SCRIPT with
engine=URL proxy=URL caller=URL caller_proxy=URL, the last two with a model that always calls a tool; passes its exit
status on."""
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
import harness  # noqa: E402
import parrot  # noqa: E402
from tool_calls_test import KIMI, KIMI_FLAGS  # noqa: E402


def main():
    processes = []
    serving = harness.ServingTest
    folder = tempfile.TemporaryDirectory()
    model = parrot.write(folder.name, KIMI, [piece for piece in KIMI if piece.startswith("<|")])
    try:
        engine = serving.engine("engine", into=processes)
        prefill = serving.prefill(harness.free_port(), into=processes)
        decode = serving.decode(into=processes)
        proxy = serving.proxy([prefill], [decode], into=processes)
        caller = serving.engine("caller", *KIMI_FLAGS, model=model, into=processes)
        calling_prefill = serving.prefill(harness.free_port(), name="calling-prefill", model=model, into=processes)
        calling_decode = serving.decode(*KIMI_FLAGS, name="calling-decode", model=model, into=processes)
        caller_proxy = serving.proxy([calling_prefill], [calling_decode], into=processes)
        return subprocess.run([sys.executable, sys.argv[1], f"engine=http://127.0.0.1:{engine.port}",
                               f"proxy=http://127.0.0.1:{proxy.port}", f"caller=http://127.0.0.1:{caller.port}",
                               f"caller_proxy=http://127.0.0.1:{caller_proxy.port}"], check=False).returncode
    finally:
        for process in reversed(processes):
            process.close()
        folder.cleanup()


if __name__ == "__main__":
    sys.exit(main())
