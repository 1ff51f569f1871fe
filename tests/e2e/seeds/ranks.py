"""What the engines' metrics say of a run: who answered, and which ranks took KV while a long prompt was served."""
import re

import harness

TAKEN = re.compile(r'^baton:rank_kv_tokens_total\{([^}]*)\}\s+([0-9.eE+-]+)$', re.M)
RANK = re.compile(r'(?:^|,)rank="([^"]*)"')
ANSWERED = re.compile(r"^vllm:request_success_total(?:\{[^}]*\})?\s+([0-9.eE+-]+)$", re.M)


def metrics(port):
    try:
        status, text, _ = harness.request(port, "GET", "/metrics", timeout=10)
        return text if status == 200 and isinstance(text, str) else ""
    except OSError:
        return ""


def reached(plan):
    """How many engines of each role have answered a request."""
    told = []
    for role in ("single", "prefill", "decode"):
        endpoints = [port for node in plan.of(role) for port in node.endpoints]
        if endpoints:
            busy = sum(1 for port in endpoints if sum(map(float, ANSWERED.findall(metrics(port)))) > 0)
            told.append(f"{busy} of {len(endpoints)} {role} engines answered")
    return "; ".join(told)


def taken_by_rank(text):
    """{rank label: tokens} of one engine's metrics."""
    return {RANK.search(labels)[1]: float(value) for labels, value in TAKEN.findall(text) if RANK.search(labels)}


class Watch:
    """Around a long request: how many tokens' KV each rank of each engine took meanwhile."""

    def __init__(self, plan, read=metrics):
        self.read = read
        self.engines = [(node.script, port) for node in plan.nodes for port in node.endpoints]
        self.before, self.grown = {}, {}

    def __enter__(self):
        self.before = {port: taken_by_rank(self.read(port)) for _, port in self.engines}
        return self

    def __exit__(self, *_):
        for _, port in self.engines:
            now = taken_by_rank(self.read(port))
            self.grown[port] = {rank: now[rank] - self.before[port].get(rank, 0) for rank in now}

    def verdict(self):
        """(whether every rank of the engines that served it took KV, what to say). In each role whose ranks split the
        context one engine served the prompt: all ranks of that one must have taken some of it."""
        told, ok = [], True
        for role in ("prefill", "decode", "single"):
            split = [(script, port) for script, port in self.engines
                     if script.role == role and script.size("pcp") * script.size("dcp") > 1]
            if not split:
                continue
            counts = [(sum(1 for tokens in self.grown[port].values() if tokens > 0), len(self.grown[port]),
                       script.size("tp") * script.size("pp") * script.size("pcp")) for script, port in split]
            took, named, expected = max(counts)
            whole = took == named == expected
            ok = ok and whole
            told.append(f"{role}: {'all ' if whole else ''}{took} of {expected} ranks took KV of the long prompt")
        return ok, "; ".join(told)
