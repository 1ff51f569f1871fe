"""The two sides of a comparison as processes that are measured in turn: each is asked for a load (requests at once,
tokens of each prompt, tokens generated of each) and answers with its rates in tokens a second."""
import os
import subprocess


class LineSide:
    """A process that keeps its model loaded, reads a load a line and answers with its rates: load_server, llama_side,
    vllm_side."""

    def __init__(self, command, environment=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **(environment or {})})
        for line in self.process.stdout:
            if line.strip() == "ready":
                return
        raise SystemExit(f"{command[0]} ended with {self.process.wait()} before it was ready")

    def measure(self, requests, prompt, output):
        self.process.stdin.write(f"{requests} {prompt} {output}\n")
        self.process.stdin.flush()
        # Libraries may print to the same place.
        for line in self.process.stdout:
            if line.startswith("rates "):
                prefill, decode = map(float, line.split()[1:])
                return {"prefill": prefill, "decode": decode}
        raise SystemExit(f"the side ended with {self.process.wait()} in a measurement")

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)
