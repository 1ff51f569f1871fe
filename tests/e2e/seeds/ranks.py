"""What the engines' metrics say of a run: who answered, and which ranks took KV while a long prompt was served."""
import re

import harness

TAKEN = re.compile(r'^baton:rank_kv_tokens_total\{([^}]*)\}\s+([0-9.eE+-]+)$', re.M)
RANK = re.compile(r'(?:^|,)rank="([^"]*)"')
ANSWERED = re.compile(r"^vllm:request_success_total(?:\{[^}]*\})?\s+([0-9.eE+-]+)$", re.M)


def metrics(endpoint):
    try:
        status, text, _ = harness.request(endpoint[1], "GET", "/metrics", timeout=10, host=endpoint[0])
        return text if status == 200 and isinstance(text, str) else ""
    except OSError:
        return ""


def reached(plan):
    """How many engines of each role have answered a request."""
    told = []
    for role in ("single", "prefill", "decode"):
        endpoints = [endpoint for node in plan.of(role) for endpoint in node.endpoints]
        if endpoints:
            busy = sum(1 for endpoint in endpoints if sum(map(float, ANSWERED.findall(metrics(endpoint)))) > 0)
            told.append(f"{busy} of {len(endpoints)} {role} engines answered")
    return "; ".join(told)


def taken_by_rank(text):
    """{rank label: tokens} of one engine's metrics."""
    return {RANK.search(labels)[1]: float(value) for labels, value in TAKEN.findall(text) if RANK.search(labels)}


class Watch:
    """Around a long request: how many tokens' KV each rank of each engine took meanwhile."""

    def __init__(self, plan, read=metrics):
        self.read = read
        self.engines = [(node.script, endpoint) for node in plan.nodes for endpoint in node.endpoints]
        self.before, self.grown = {}, {}

    def __enter__(self):
        self.before = {endpoint: taken_by_rank(self.read(endpoint)) for _, endpoint in self.engines}
        return self

    def __exit__(self, *_):
        for _, endpoint in self.engines:
            now = taken_by_rank(self.read(endpoint))
            self.grown[endpoint] = {rank: now[rank] - self.before[endpoint].get(rank, 0) for rank in now}

    def verdict(self):
        """(whether every rank of the engines that served it took KV, what to say). In each role whose ranks split the
        context one engine served the prompt: all ranks of that one must have taken some of it."""
        told, ok = [], True
        for role in ("prefill", "decode", "single"):
            split = [(script, endpoint) for script, endpoint in self.engines
                     if script.role == role and script.size("pcp") * script.size("dcp") > 1]
            if not split:
                continue
            counts = [(sum(1 for tokens in self.grown[endpoint].values() if tokens > 0), len(self.grown[endpoint]),
                       script.size("tp") * script.size("pp") * script.size("pcp")) for script, endpoint in split]
            took, named, expected = max(counts)
            whole = took == named == expected
            ok = ok and whole
            told.append(f"{role}: {'all ' if whole else ''}{took} of {expected} ranks took KV of the long prompt")
        return ok, "; ".join(told)
