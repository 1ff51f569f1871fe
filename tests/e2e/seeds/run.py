"""Brings up the deployments of a folder of documents as they are written, on this host, with small checkpoints, and
compares what each answers with a one-rank engine of the same checkpoint: token ids and logprobs must be equal.

  run.py --docs FOLDER --list             what was found
  run.py --docs FOLDER                    all of them, one after another
  run.py --docs FOLDER --only NAME        those whose name holds NAME
  run.py --docs FOLDER --flatten          every engine one rank: quick, everything else as written
  run.py --docs FOLDER --netns            a network namespace for each machine: the documents' addresses and ports

Exit status: 0 if every deployment that was brought up answered as it should, 1 otherwise, 2 for a wrong command line.
"""
import argparse
import contextlib
import json
import os
import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "netns")]
import bring_up  # noqa: E402
import checkpoints  # noqa: E402
import compare  # noqa: E402
import documents  # noqa: E402
import fill  # noqa: E402
import harness  # noqa: E402
import lowering  # noqa: E402
import namespaces  # noqa: E402
import ranks  # noqa: E402

LAYOUT = ("dp", "tp", "pp", "pcp", "dcp", "nnodes")


def layout_of(script):
    return " ".join(f"{short}{script.size(short)}" for short in LAYOUT if script.size(short) > 1) or "one rank"


def engines_of(node):
    """Replicas that the node runs: behind one port where one server fronts them all."""
    return node.engines if node.script.by_launcher else node.script.size("dp")


def print_list(found):
    for file, deployments in found:
        print(f"{file}: {len(deployments)} deployments")
        for deployment in deployments:
            print(f"  {deployment.name}")
            for script in deployment.scripts:
                how = "launcher" if script.by_launcher else "as it is"
                print(f"    line {script.line}: {script.role}, {layout_of(script)}, {how}, "
                      f"{script.connector_name or 'no connector'}, model {script.model}")
                print(f"      flags: {' '.join(sorted(name for name in script.options if name))}")
            for launch in deployment.launches:
                print(f"    line {launch.line}: launcher, dp {launch.one('--dp-size')} of which "
                      f"{launch.one('--dp-size-local')} there from rank {launch.one('--dp-rank-start')}, "
                      f"tp {launch.one('--tp-size')}")
            if deployment.proxy:
                options = deployment.proxy.options
                print(f"    line {deployment.proxy.line}: proxy {pathlib.PurePosixPath(options[''][1]).name}, "
                      f"{len(options['--prefiller-ports'])} prefill, {len(options['--decoder-ports'])} decode")
            for missing in deployment.missing:
                print(f"    missing: {missing}")


class Runner:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.ports = fill.Ports()
        self.references = {}
        self.checkpoint_root = work / "checkpoints" if options.own_checkpoints else checkpoints.default_root()
        self.shim = pathlib.Path(os.environ["BATON_SHIM"]) if "BATON_SHIM" in os.environ else bring_up.shim_folder()

    def run(self, deployment):
        """A row of the table."""
        row = {"name": deployment.name, "processes": 0, "ranks": 0, "start_s": None, "requests": 0, "equal": 0,
               "memory_mb": 0, "state": "", "notes": []}
        if deployment.pooled:
            return {**row, "state": "left out", "notes": ["the pooled cache (MultiConnector, AscendStore) is not there"]}
        try:
            self.bring_up_and_compare(deployment, row)
        except (bring_up.NotUp, ValueError, RuntimeError, OSError, AssertionError) as error:
            row["state"] = "failed"
            row["notes"].append(str(error))
        return row

    def bring_up_and_compare(self, deployment, row):
        if deployment.missing:
            raise bring_up.NotUp("; ".join(deployment.missing))
        script = deployment.scripts[-1]
        checkpoint = lowering.checkpoint_of(script.model)
        model = checkpoints.make(checkpoint, self.checkpoint_root)
        folder = self.work / deployment.name
        folder.mkdir(parents=True, exist_ok=True)
        placing = fill.OwnHosts() if self.options.netns else fill.OneHost(self.ports)
        plan = fill.Filler(deployment, placing, folder, flatten=self.options.flatten).fill()
        self.tell(deployment, plan, model, checkpoint)
        long_prompt = not (self.options.flatten or self.options.no_long_prompt) and any(s.size("pcp") * s.size("dcp") > 1 for s in deployment.scripts)
        asked = compare.requests_for(script.one("--served-model-name"), sum(
            node.engines for node in plan.of("decode") or plan.of("single")), long_prompt)
        wanted = self.reference(script, model, checkpoint, asked, folder)
        row["notes"] += plan.notes
        row["ranks"] = sum(1 if self.options.flatten else lowering.ranks_of(node.script) * engines_of(node)
                           if node.script.size("nnodes") == 1 else
                           lowering.ranks_of(node.script) // node.script.size("nnodes") for node in plan.nodes)
        with self.hosts_of(plan) as network:
            running = bring_up.Running(plan, folder, lambda node: self.edits(node, model, checkpoint), self.shim,
                                       self.options.start_seconds, network)
            try:
                running.start()
                self.serve(running, asked, wanted, long_prompt, row)
                if self.options.keep:
                    self.keep(running)
            finally:
                late = running.close()
        if late:
            row["state"] = "failed"
            row["notes"].append(late)

    def edits(self, node, model, checkpoint):
        return lowering.edits(node, model, checkpoint, self.options.flatten, not self.options.netns)

    @contextlib.contextmanager
    def hosts_of(self, plan):
        """With --netns a namespace for each machine, and this process at one of its own beside them."""
        if not self.options.netns:
            yield None
            return
        addresses = list(dict.fromkeys(node.host for node in plan.nodes))
        client = addresses[0].rpartition(".")[0] + ".250"
        network = namespaces.Network(**{f"n{i}": address for i, address in enumerate([*addresses, client])})
        try:
            with network.at(client).inside():
                yield network
        finally:
            network.close()

    def tell(self, deployment, plan, model, checkpoint):
        print(f"\n== {deployment.name}: logs in {self.work / deployment.name}", flush=True)
        told = []
        for node in plan.nodes:
            made = self.edits(node, model, checkpoint)
            told += [(node.script.role, line) for line in lowering.told(node.script, made) + node.notes]
        for role, line in dict.fromkeys(told):
            print(f"  {role}: {line}")

    def reference(self, script, model, checkpoint, asked, folder):
        """What one rank answers; asked once for deployments that agree on all that matters."""
        port = self.ports.one()
        words = lowering.reference_words(script, model, checkpoint, port)
        key = json.dumps([[word for word in words if word != str(port)], asked])
        if key in self.references:
            return self.references[key]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        group = bring_up.Group("one-rank", [harness.BATON, *words], folder, environment)
        try:
            self.wait_reference(group, port)
            got = compare.answers(("127.0.0.1", port), asked, self.options.request_seconds, at_once=4)
        finally:
            group.signal(bring_up.signal.SIGTERM)
            try:
                group.popen.wait(bring_up.STOP_SECONDS)
            except bring_up.subprocess.TimeoutExpired:
                group.signal(bring_up.signal.SIGKILL)
                group.popen.wait()
            group.log.close()
        self.references[key] = got
        return got

    def wait_reference(self, group, port):
        deadline = time.monotonic() + self.options.start_seconds
        while time.monotonic() < deadline:
            if group.ended():
                raise bring_up.NotUp(f"the one-rank engine ended with {group.popen.returncode}:\n{group.trouble()}")
            try:
                if harness.request(port, "GET", "/health", timeout=5)[0] == 200:
                    return
            except OSError:
                time.sleep(0.1)
        raise bring_up.NotUp("the one-rank engine is not ready")

    def serve(self, running, asked, wanted, long_prompt, row):
        plan = running.plan
        row["start_s"], row["processes"] = running.started_s, running.process_count()
        row["memory_mb"] = running.memory_bytes() // 1_000_000
        print(f"  up in {running.started_s:.1f} s: {row['processes']} processes, {row['ranks']} ranks, "
              f"{row['memory_mb']} MB", flush=True)
        begin = time.monotonic()
        short = [request for request in asked if request[0] != "long"]
        got = compare.answers(plan.entrance, short, self.options.request_seconds, at_once=min(32, len(short)))
        held = None
        if long_prompt:
            with ranks.Watch(plan) as watch:
                got |= compare.answers(plan.entrance, [r for r in asked if r[0] == "long"], self.options.request_seconds, 1)
            held = watch
        running.check_alive()
        wrong = compare.differences(wanted, got)
        row["requests"], row["equal"] = len(asked), len(asked) - len(wrong)
        row["notes"].append(f"{time.monotonic() - begin:.1f} s of requests")
        row["notes"] += [f"{name}: {what}" for name, what in wrong[:4]]
        row["notes"].append(ranks.reached(plan))
        row["state"] = "failed" if wrong else "equal"
        if held is not None:
            ok, told = held.verdict()
            row["notes"].append(told)
            if not ok:
                row["state"] = "failed"

    @staticmethod
    def keep(running):
        host, port = running.plan.entrance
        print(f"  keeps serving at {host}:{port}; interrupt to go on", flush=True)
        try:
            while True:
                time.sleep(1)
                running.check_alive()
        except KeyboardInterrupt:
            pass


def print_table(rows):
    print(f"\n{'deployment':<38} {'state':<9} {'procs':>5} {'ranks':>5} {'start':>7} {'MB':>6} {'requests':>8} {'equal':>5}")
    for row in rows:
        start = f"{row['start_s']:.1f} s" if row["start_s"] is not None else "-"
        print(f"{row['name']:<38} {row['state']:<9} {row['processes']:>5} {row['ranks']:>5} {start:>7} "
              f"{row['memory_mb']:>6} {row['requests']:>8} {row['equal']:>5}")
        for note in row["notes"]:
            for line in note.splitlines():
                print(f"    {line[:300]}")


def parse_options(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", required=True, help="Folder of the documents (*.txt, *.md)")
    parser.add_argument("--list", action="store_true", help="Say what was found, start nothing")
    parser.add_argument("--only", action="append", default=[], metavar="NAME",
                        help="Deployments whose name holds this (or is =NAME); may be repeated")
    parser.add_argument("--flatten", action="store_true", help="Every engine one rank; everything else as written")
    parser.add_argument("--netns", action="store_true",
                        help="A network namespace for each machine, with the document's addresses and ports")
    parser.add_argument("--no-long-prompt", action="store_true",
                        help="Context-parallel deployments are not asked the prompt of 12 800 tokens")
    parser.add_argument("--keep", action="store_true", help="Keep a deployment serving until interrupted")
    parser.add_argument("--work", help="Folder for logs and filled-in scripts (default: a new one in /tmp)")
    parser.add_argument("--own-checkpoints", action="store_true", help="Make checkpoints under --work, not in the cache")
    parser.add_argument("--start-seconds", type=float, default=300, help="For a deployment to come up")
    parser.add_argument("--request-seconds", type=float, default=600, help="For one answer")
    return parser.parse_args(words)


def wanted(deployment, only):
    return not only or any(deployment.name == name[1:] if name.startswith("=") else name in deployment.name
                           for name in only)


def main(words):
    options = parse_options(words)
    if not pathlib.Path(options.docs).is_dir():
        print(f"--docs {options.docs}: no such folder", file=sys.stderr)
        return 2
    if options.netns and namespaces.why_not():
        print(f"--netns: {namespaces.why_not()}", file=sys.stderr)
        return 2
    found = documents.read(options.docs)
    if options.list:
        print_list(found)
        return 0
    chosen = [deployment for _, deployments in found for deployment in deployments if wanted(deployment, options.only)]
    if not chosen:
        print(f"no deployment of {options.docs} is called so; --list says which there are", file=sys.stderr)
        return 2
    work = pathlib.Path(options.work or tempfile.mkdtemp(prefix="baton-seeds-")).resolve()
    work.mkdir(parents=True, exist_ok=True)
    runner = Runner(options, work)
    rows = []
    for deployment in chosen:
        rows.append(runner.run(deployment))
        print(f"  {rows[-1]['state']}", flush=True)
    print_table(rows)
    (work / "report.json").write_text(json.dumps(rows, indent=1))
    return 1 if any(row["state"] == "failed" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
