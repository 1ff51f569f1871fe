"""Takes the deployments out of the documents: scripts around `vllm serve`, launcher lines, proxy lines, and which of
them belong together. Reads only; nothing here depends on a particular document.

A script's role is what its --kv-transfer-config says. Scripts follow each other as documents print them: prefill nodes,
then decode nodes; the next prefill node (or a script without a role) begins another deployment. A script that reads $2
is started by the launcher, one that doesn't is run as it is, once for each node of --nnodes.
"""
import dataclasses
import json
import pathlib
import re

import shell_text

SERVE = re.compile(r"^\s*(exec\s+)?vllm\s+serve\s+(?!command)\S")
LAUNCH = re.compile(r"^\s*python3?\s+\S*launch_online_dp\.py\s+\S")
PROXY = re.compile(r"^\s*python3?\s+\S*load_balance_proxy_(layerwise_)?server_example\.py\S*\s+\S")
LAYERWISE = "MooncakeLayerwiseConnector"
POOLED = "MultiConnector"
LONG_CONTEXT = 1_000_000
SIZES = {"dp": "--data-parallel-size", "tp": "--tensor-parallel-size", "pp": "--pipeline-parallel-size",
         "pcp": "--prefill-context-parallel-size", "dcp": "--decode-context-parallel-size", "nnodes": "--nnodes"}


@dataclasses.dataclass
class Command:
    """One command of a document."""
    file: str
    line: int  # counted from 1
    text: str
    options: dict

    def one(self, name, default=None):
        values = self.options.get(name)
        return values[0] if values else default

    def number(self, name, default=None):
        value = self.one(name)
        return int(value) if value is not None and re.fullmatch(r"\d+", value) else default


@dataclasses.dataclass
class Script(Command):
    """A whole script with its `vllm serve`; `options` are of that command."""
    heading: str = ""
    connector: dict = dataclasses.field(default_factory=dict)  # --kv-transfer-config

    @property
    def model(self):
        return self.options[""][2 if self.options[""][0] == "vllm" else 3]

    @property
    def role(self):
        return {"kv_producer": "prefill", "kv_consumer": "decode"}.get(self.connector.get("kv_role"), "single")

    @property
    def connector_name(self):
        return self.connector.get("kv_connector", "")

    @property
    def by_launcher(self):
        return "$2" in self.text or "${2" in self.text

    @property
    def local_ip(self):
        found = re.search(r"^\s*local_ip=['\"]?([^'\"\s]+)", self.text, re.M)
        return found[1] if found else None

    def told_sizes(self):
        """What the connector's extra configuration says of this script's own role; a MultiConnector holds it inside."""
        extra = self.connector.get("kv_connector_extra_config", {})
        for config in [extra, *(inner.get("kv_connector_extra_config", {}) for inner in extra.get("connectors", []))]:
            if self.role in config:
                return config[self.role]
        return {}

    def size(self, short):
        """A parallel size; what the launcher fills in comes from the connector's own account of the role."""
        value = self.number(SIZES[short])
        if value is None and self.one(SIZES[short]) is not None:
            value = self.told_sizes().get(f"{short}_size")
        return 1 if value is None else value


@dataclasses.dataclass
class Deployment:
    name: str
    scripts: list
    launches: list = dataclasses.field(default_factory=list)  # one for each script that the launcher starts, or one
    proxy: Command = None
    missing: list = dataclasses.field(default_factory=list)

    def of(self, role):
        return [script for script in self.scripts if script.role == role]

    @property
    def pooled(self):
        return any(script.connector_name == POOLED for script in self.scripts)

    @property
    def layerwise(self):
        return any(script.connector_name == LAYERWISE for script in self.scripts)


def read(folder):
    """[(file name, deployments)] of every text file that holds a `vllm serve`."""
    found = []
    for path in sorted(pathlib.Path(folder).iterdir()):
        if path.is_file() and path.suffix in (".txt", ".md"):
            deployments = parse(path.name, path.read_text(errors="replace"))
            if deployments:
                found.append((path.name, deployments))
    return found


def parse(file, text):
    lines = text.splitlines()
    scripts, launches, proxies, behind = [], [], [], 0
    at = 0
    while at < len(lines):
        kind = (SERVE.match(lines[at]) and "serve") or (LAUNCH.match(lines[at]) and "launch") or (
            PROXY.match(lines[at]) and "proxy")
        if not kind:
            at += 1
            continue
        end = shell_text.command_end(lines, at)
        command = "\n".join(lines[at:end])
        options = shell_text.options_of(shell_text.words_of(command))
        if kind == "serve":
            scripts.append(script_of(file, lines, at, end, behind, options))
        else:
            (launches if kind == "launch" else proxies).append(Command(file, at + 1, command, options))
        at = behind = end
    deployments = grouped(scripts)
    for deployment in deployments:
        attach(deployment, launches, proxies)
    return named(deployments)


def script_of(file, lines, at, end, floor, options):
    start = shell_text.script_start(lines, at, floor)
    heading = next((lines[i].strip() for i in range(start - 1, floor - 1, -1) if lines[i].strip()), "")
    connector = {}
    if "--kv-transfer-config" in options:
        connector = json.loads(options["--kv-transfer-config"][0])
    return Script(file, start + 1, "\n".join(lines[start:end]) + "\n", options, heading, connector)


def grouped(scripts):
    deployments = []
    for script in scripts:
        last = deployments[-1].scripts[-1] if deployments else None
        order = {"single": 0, "prefill": 1, "decode": 2}
        goes_on = (last is not None and script.role != "single" and last.role != "single"
                   and order[script.role] >= order[last.role]
                   and (script.model, script.connector_name) == (last.model, last.connector_name))
        if not goes_on:
            deployments.append(Deployment("", []))
        deployments[-1].scripts.append(script)
    return deployments


def attach(deployment, launches, proxies):
    """The launcher and proxy lines that fit: first those below the scripts, then those above."""
    behind = deployment.scripts[-1].line
    wanted = [script for script in deployment.scripts if script.by_launcher]
    for script in wanted:
        fitting = [launch for launch in launches if fits(launch, script)]
        below = [launch for launch in fitting if launch.line > behind]
        # Several scripts of one size are started by the lines of that size, in order.
        nth = [other for other in wanted if (other.size("dp"), other.size("tp")) ==
               (script.size("dp"), script.size("tp"))].index(script)
        choice = below or fitting[::-1]
        if choice:
            deployment.launches.append(choice[min(nth, len(choice) - 1)])
        else:
            deployment.missing.append(f"no launcher line with dp {script.size('dp')}, tp {script.size('tp')}")
    if deployment.of("decode"):
        fitting = [proxy for proxy in proxies if ("layerwise" in proxy.options[""][1]) == deployment.layerwise]
        below = [proxy for proxy in fitting if proxy.line > behind]
        deployment.proxy = (below or fitting[::-1] or [None])[0]
        if deployment.proxy is None:
            deployment.missing.append("no proxy line")


def fits(launch, script):
    return (launch.number("--dp-size"), launch.number("--tp-size")) == (script.size("dp"), script.size("tp"))


def named(deployments):
    taken = set()
    for deployment in deployments:
        first = deployment.scripts[0]
        kind = ("single" if first.role == "single" else "pooled" if deployment.pooled
                else "layerwise" if deployment.layerwise else "pull")
        name = f"{pathlib.PurePosixPath(first.model).name.lower()}-{kind}"
        if not deployment.pooled and first.number("--max-model-len", 0) >= LONG_CONTEXT:
            name += "-1m"
        count = 2
        deployment.name = name
        while deployment.name in taken:
            deployment.name, count = f"{name}-{count}", count + 1
        taken.add(deployment.name)
    return deployments
