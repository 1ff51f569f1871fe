"""What the engines' metrics say of a run: who answered, and which ranks held KV while a long prompt was served."""
import re
import threading

import harness

HELD = re.compile(r'^baton:rank_kv_blocks_used\{([^}]*)\}\s+([0-9.eE+-]+)$', re.M)
RANK = re.compile(r'rank="([^"]*)"')
ANSWERED = re.compile(r"^vllm:request_success_total(?:\{[^}]*\})?\s+([0-9.eE+-]+)$", re.M)
PERIOD_S = 0.2


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


def held_by_rank(text):
    """{rank label: blocks} of one engine's metrics."""
    return {RANK.search(labels)[1]: float(value) for labels, value in HELD.findall(text) if RANK.search(labels)}


class Watch:
    """Reads every engine's ranks while a request runs, and keeps the most that each rank held."""

    def __init__(self, plan):
        self.ports = {(node.name, port): port for node in plan.nodes for port in node.endpoints}
        self.context = {node.name: node.script.size("pcp") * node.script.size("dcp") for node in plan.nodes}
        self.most = {}
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()
        self.look()

    def watch(self):
        while not self.done.wait(PERIOD_S):
            self.look()

    def look(self):
        for who, port in self.ports.items():
            for rank, blocks in held_by_rank(metrics(port)).items():
                key = (who, rank)
                self.most[key] = max(self.most.get(key, 0), blocks)

    def verdict(self):
        """(whether every rank of the engines that served held KV, what to say). Of each role with context ranks one
        engine served the prompt; all ranks of that one must have held some of it."""
        by_engine = {}
        for (who, rank), blocks in self.most.items():
            by_engine.setdefault(who, {})[rank] = blocks
        told, ok = [], True
        for role in ("prefill", "decode", "single"):
            engines = {who: held for who, held in by_engine.items()
                       if who[0].startswith(role) and self.context[who[0]] > 1}
            if not any(name.startswith(role) and self.context[name] > 1 for name in self.context):
                continue
            whole = [held for held in engines.values() if held and all(blocks > 0 for blocks in held.values())]
            if whole:
                told.append(f"{role}: all {max(map(len, whole))} ranks held KV of the long prompt")
            else:
                ok = False
                some = max((sum(1 for b in held.values() if b > 0) for held in engines.values()), default=0)
                told.append(f"{role}: {some} ranks held KV of the long prompt, "
                            f"of {max(map(len, engines.values()), default=0)} that the metric names")
        return ok, "; ".join(told)
