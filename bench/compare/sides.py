"""The two sides of a comparison as processes that are measured in turn: each is asked for a load (requests at once,
tokens of each prompt, tokens generated of each) and answers with its rates in tokens a second."""
import json
import os
import subprocess


class LineSide:
    """A process that keeps its model loaded, reads a load a line and answers with its rates: load_server, vllm_side."""

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


class BatchedBench:
    """llama.cpp's llama-batched-bench, one run a measurement. It draws no tokens: its steps end with the logits."""

    def __init__(self, program, model, threads):
        self.command = [program, "-m", str(model), "-t", str(threads), "-tb", str(threads), "-fa", "on",
                        "--output-format", "jsonl"]

    def measure(self, requests, prompt, output):
        context = requests * (prompt + output)
        command = self.command + ["-c", str(max(context, 512)), "-npp", str(prompt), "-ntg", str(output), "-npl",
                                  str(requests)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        for line in result.stdout.splitlines() + result.stderr.splitlines():
            if "speed_pp" in line and "{" in line:
                values = json.loads(line[line.index("{"):])
                return {"prefill": values["speed_pp"], "decode": values["speed_tg"]}
        raise SystemExit(f"{' '.join(command)} gave no figures:\n{result.stderr[-2000:]}")

    def close(self):
        pass
