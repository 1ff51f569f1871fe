#!/usr/bin/env python3
"""How long clients wait when a process is lost: python3 tests/chaos/recovery_times.py [--rounds 5] [--markdown]

Two prefill engines, two decode engines and a proxy, real processes on this host with the tests' tiny model. A steady
client asks over and over, another holds a long stream; then something is killed (SIGKILL), stopped (SIGSTOP) or
restarted. Every answer is compared with the one before the loss; a wrong or refused one is counted and fails the run.
Each figure is the median of the rounds and the worst one, in milliseconds.
"""
import argparse
import http.client
import json
import pathlib
import signal
import statistics
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/e2e"))
import harness  # noqa: E402
from harness import ServingTest, free_port, metric, post, request, wait_until  # noqa: E402

PROMPT = "Either the well was very deep, or she fell very slowly, for she had plenty of time. " * 6
STREAM = {"prompt": PROMPT, "temperature": 1, "seed": 5, "max_tokens": 3000, "ignore_eos": True, "stream": True,
          "return_token_ids": True}
SHORT = {"prompt": PROMPT, "temperature": 0, "max_tokens": 4}
NO_PREFIX = iter(range(1 << 60))


def ms(seconds):
    return seconds * 1000


def ask(port):
    """One short request that no prefix cache answers. (seconds, text or None)"""
    began = time.monotonic()
    try:
        status, answer, _ = post(port, "/v1/completions", {**SHORT, "cache_salt": str(next(NO_PREFIX))}, timeout=60)
    except OSError:
        return time.monotonic() - began, None
    return time.monotonic() - began, answer["choices"][0]["text"] if status == 200 else None


class LongStream(threading.Thread):
    """A stream whose pauses are measured: (when, token ids) of each event."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.arrivals, self.ids, self.error = port, [], [], None
        self.start()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", "/v1/completions", json.dumps(STREAM), {"Content-Type": "application/json"})
            for line in connection.getresponse():
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                self.error = event.get("error", self.error)
                self.arrivals.append(time.monotonic())
                self.ids += [i for choice in event.get("choices", ()) for i in choice["token_ids"] or ()]
        except (OSError, http.client.HTTPException) as error:
            self.error = error
        finally:
            connection.close()

    def longest_pause(self):
        return max(b - a for a, b in zip(self.arrivals, self.arrivals[1:]))


class World:
    def __init__(self):
        self.processes = []
        self.p = [ServingTest.prefill(free_port(), into=self.processes, name=f"p{i}") for i in range(2)]
        self.d = [ServingTest.decode(into=self.processes, name=f"d{i}") for i in range(2)]
        self.proxy = ServingTest.proxy(self.p, self.d, into=self.processes)
        self.settle()
        self.text = ask(self.proxy.port)[1]
        alone = LongStream(self.d[0].port)
        alone.join()
        self.ids, self.wrong, self.refused = alone.ids, 0, 0

    def close(self):
        for process in self.processes:
            process.killed = True
        harness.end_all(self.processes)

    def up(self, process):
        _, text, _ = request(self.proxy.port, "GET", "/metrics")
        mark = f'baton_proxy_instance_up{{instance="127.0.0.1:{process.port}"'
        return any(line.startswith(mark) and line.endswith(" 1") for line in text.splitlines())

    def settle(self):
        wait_until(lambda: all(self.up(x) for x in self.p + self.d), 30, "all are up")

    def busy(self, engines):
        found = []

        def look():
            found[:] = [e for e in engines if metric(e.port, "vllm:num_requests_running") > 0]
            return found
        wait_until(look, 30, "the stream runs")
        return found[0]

    def restart(self, dead, role):
        dead.popen.wait()
        began = time.monotonic()
        if role == "p":
            again = ServingTest.prefill(free_port(), into=self.processes, name="p-again", port=dead.port)
            self.p[self.p.index(dead)] = again
        else:
            again = ServingTest.decode(into=self.processes, name="d-again", port=dead.port)
            self.d[self.d.index(dead)] = again
        ready = time.monotonic() - began
        wait_until(lambda: self.up(again), 30, "it is back")
        return again, ready, time.monotonic() - began

    def worst_of(self, seconds):
        """The slowest short request of the next `seconds`."""
        worst, end = 0.0, time.monotonic() + seconds
        while time.monotonic() < end:
            took, text = ask(self.proxy.port)
            self.refused += text is None
            self.wrong += text not in (None, self.text)
            worst = max(worst, took)
        return worst

    def check(self, stream):
        stream.join(90)
        self.refused += stream.error is not None
        self.wrong += stream.error is None and stream.ids != self.ids

    def lose(self, group, sig, role):
        """Takes one of `group` away. Gives what clients saw, until it was out, and its restart."""
        seen = {}
        stream = LongStream(self.proxy.port)
        victim = self.busy(self.d)
        time.sleep(0.2)
        if role == "p":
            victim = group[0]
        began = time.monotonic()
        victim.kill(sig)
        watcher = {}

        def watch():
            wait_until(lambda: not self.up(victim), 30, "it is out")
            watcher["out"] = time.monotonic() - began
        thread = threading.Thread(target=watch)
        thread.start()
        seen["short"] = self.worst_of(2.0)
        thread.join()
        seen["out"] = watcher["out"]
        self.check(stream)
        seen["pause"] = stream.longest_pause()
        if sig == signal.SIGSTOP:
            began = time.monotonic()
            victim.popen.send_signal(signal.SIGCONT)
            wait_until(lambda: self.up(victim), 30, "it is back")
            seen["back"] = time.monotonic() - began
        else:
            again, ready, back = self.restart(victim, role)
            seen["ready"], seen["back"] = ready, back - ready
            wait_until(lambda: ask(self.proxy.port) and metric(again.port, "vllm:prompt_tokens_total") > 0, 30,
                       "it is used")
        self.settle()
        return seen

    def restart_only_decode(self):
        """Both decode engines die, one is started again at once: the stream's pause is the restart and what follows."""
        stream = LongStream(self.proxy.port)
        self.busy(self.d)
        time.sleep(0.2)
        for dead in self.d:
            dead.kill()
        again, ready, _ = self.restart(self.d[0], "d")
        self.check(stream)
        self.restart(self.d[1], "d")
        self.settle()
        return {"pause": stream.longest_pause(), "ready": ready, "back": stream.longest_pause() - ready}

    def restart_proxy(self):
        old = self.proxy
        began = time.monotonic()
        old.kill()
        old.popen.wait()
        arguments = old.popen.args[1:]
        self.proxy = harness.Process("proxy-again", arguments, old.port)
        self.processes.append(self.proxy)
        while True:
            took, text = ask(old.port)
            if text == self.text:
                break
        first = time.monotonic() - began
        self.settle()
        return {"short": first, "back": time.monotonic() - began}


ROWS = {
    "P killed": lambda w: w.lose(w.p, signal.SIGKILL, "p"),
    "D killed": lambda w: w.lose(w.d, signal.SIGKILL, "d"),
    "P stopped (SIGSTOP)": lambda w: w.lose(w.p, signal.SIGSTOP, "p"),
    "D stopped (SIGSTOP)": lambda w: w.lose(w.d, signal.SIGSTOP, "d"),
    "every D killed, one restarted": lambda w: w.restart_only_decode(),
    "proxy killed and restarted": lambda w: w.restart_proxy(),
}
COLUMNS = {"pause": "longest pause of the stream", "short": "slowest short request", "out": "until not chosen",
           "ready": "its restart until /health", "back": "from there until chosen"}


def cell(rounds, key):
    values = [one[key] for one in rounds if one.get(key) is not None]
    return f"{ms(statistics.median(values)):.0f} ({ms(max(values)):.0f})" if values else "-"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    world = World()
    try:
        quiet = LongStream(world.proxy.port)
        baseline = world.worst_of(1.0)
        world.check(quiet)
        print(f"without a loss: longest pause {ms(quiet.longest_pause()):.0f} ms, slowest short request "
              f"{ms(baseline):.0f} ms\n")
        print("| lost | " + " | ".join(f"{title}, ms" for title in COLUMNS.values()) + " |")
        print("|---" * (len(COLUMNS) + 1) + "|", flush=True)
        for name, lose in ROWS.items():
            if args.only and args.only not in name:
                continue
            rounds = [lose(world) for _ in range(args.rounds)]
            print(f"| {name} | " + " | ".join(cell(rounds, key) for key in COLUMNS) + " |", flush=True)
        print(f"\nwrong answers: {world.wrong}, refused: {world.refused}")
    finally:
        world.close()
    return 1 if world.wrong or world.refused else 0


if __name__ == "__main__":
    sys.exit(main())
