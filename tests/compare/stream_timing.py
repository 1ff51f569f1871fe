"""Streams completions and times every token; and says how much of the machine others took meanwhile."""
import http.client
import json
import os
import pathlib
import threading
import time


class Answer:
    """Tokens of one streamed completion, and when each came (seconds since the request was sent)."""

    def __init__(self):
        self.tokens, self.times, self.error = [], [], None
        self.cpu = []  # CPU seconds that the engine had used by then

    def steps(self):
        return differences(self.times)


def differences(values):
    return [b - a for a, b in zip(values, values[1:])]


def cpu_seconds(pid):
    """CPU time of all its threads, to the nanosecond."""
    total = 0
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
        total += int(path.read_text().split()[0])
    return total / 1e9


def stream(port, model, prompt, max_tokens, answer=None, start=None, pid=None):
    """`prompt`: token ids. Greedy, never ended by a stop token. `pid`: the engine whose CPU time each token reads."""
    answer = answer or Answer()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        start = start or time.monotonic()
        body = {"model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True,
                "stream": True, "return_token_ids": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"status {response.status}: {response.read()[:500]}")
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            now = time.monotonic() - start
            event = json.loads(line[len(b"data: "):])
            if "error" in event:
                raise RuntimeError(f"an error in the stream: {event['error']}")
            for choice in event["choices"]:
                answer.tokens += choice["token_ids"]
                answer.times += [now] * len(choice["token_ids"])
            if pid:
                answer.cpu.append(cpu_seconds(pid))
        if len(answer.tokens) != max_tokens:
            raise RuntimeError(f"{len(answer.tokens)} tokens instead of {max_tokens}")
    except Exception as error:  # noqa: BLE001: a thread's error is the caller's to raise
        answer.error = error
    finally:
        connection.close()
    return answer


def one(port, model, prompt, max_tokens, pid=None):
    answer = stream(port, model, prompt, max_tokens, pid=pid)
    if answer.error:
        raise answer.error
    return answer


def together(port, model, prompts, max_tokens, pid=None):
    """All prompts at once; times count from one start. CPU time is in the first answer alone."""
    answers, start = [Answer() for _ in prompts], time.monotonic()
    threads = [threading.Thread(target=stream,
                                args=(port, model, prompt, max_tokens, answer, start, None if at else pid))
               for at, (prompt, answer) in enumerate(zip(prompts, answers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for answer in answers:
        if answer.error:
            raise answer.error
    return answers


def joint_rate(answers):
    """(tokens a second while every answer was being generated, seconds between tokens of one answer then)."""
    begin, end = max(a.times[0] for a in answers), min(a.times[-1] for a in answers)
    tokens = sum(sum(begin < t <= end for t in a.times) for a in answers)
    steps = [b - a for answer in answers for a, b in zip(answer.times, answer.times[1:]) if begin < b <= end]
    return tokens / (end - begin), steps


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class OthersShare:
    """Share of the machine's CPU time, between begin() and end(), that went to processes that are not ours."""

    def __init__(self, pids):
        self.pids = pids
        self.at_begin = self.read()

    def read(self):
        with open("/proc/stat") as file:
            fields = [int(field) for field in file.readline().split()[1:9]]
        busy, total = sum(fields) - fields[3] - fields[4], sum(fields)
        ours = 0
        for pid in [*self.pids, os.getpid()]:
            with open(f"/proc/{pid}/stat") as file:
                after_name = file.read().rsplit(")", 1)[1].split()
            ours += int(after_name[11]) + int(after_name[12])
        return busy, total, ours

    def end(self):
        busy, total, ours = (b - a for a, b in zip(self.at_begin, self.read()))
        return max(0.0, (busy - ours) / total) if total else 0.0
