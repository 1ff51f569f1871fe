#!/usr/bin/env python3
"""run_against.py SCRIPT: starts an engine, and prefill, decode and proxy, on the small checkpoint; runs SCRIPT with
engine=URL proxy=URL; passes its exit status on."""
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
import harness  # noqa: E402


def main():
    processes = []
    serving = harness.ServingTest
    try:
        engine = serving.engine("engine", into=processes)
        prefill = serving.prefill(harness.free_port(), into=processes)
        decode = serving.decode(into=processes)
        proxy = serving.proxy([prefill], [decode], into=processes)
        return subprocess.run([sys.executable, sys.argv[1], f"engine=http://127.0.0.1:{engine.port}",
                               f"proxy=http://127.0.0.1:{proxy.port}"], check=False).returncode
    finally:
        for process in reversed(processes):
            process.close()


if __name__ == "__main__":
    sys.exit(main())
