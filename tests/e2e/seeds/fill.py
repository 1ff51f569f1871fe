"""Fills a deployment's templates in: what runs on which node, at which address, on which ports.

The documents give each machine an address of its own and let machines repeat ports. On one host all addresses become one,
so each node gets ports of its own, and the proxy's line follows (OneHost). With a namespace for each machine addresses and
ports are the document's (OwnHosts). A script's text stays as it is but for placeholders (<LIKE_THIS> and the three
variables that say what to fill in) and lines that tune the host, which are left out and told.
"""
import dataclasses
import random
import re
import shlex
import socket

PLACEHOLDER = re.compile(r"<([A-Z][A-Z0-9_]*)>")
HOST_TUNING = re.compile(r"^\s*(sysctl\b|echo\b.*\|\s*tee\s+/(sys|proc)/|export\s+LD_PRELOAD=)")
HOST_VARIABLE = re.compile(r"^(\s*)(nic_name|local_ip|node0_ip)=(\"[^\"]*\"|'[^']*'|\S*)", re.M)
KV_PORT = re.compile(r'("kv_port"\s*:\s*")\d+(")')
KV_PORTS = 256  # of one node: an engine takes as many as it has ranks, behind those of the data-parallel ranks before it


class Ports:
    """Runs of free ports of this host, below the range from which the kernel takes those of connections."""
    FIRST, LAST = 15000, 31000

    def __init__(self, seed=None):
        self.next = random.Random(seed).randrange(self.FIRST, self.LAST - 8000)

    def run(self, count):
        while self.next + count <= self.LAST:
            taken = [port for port in range(self.next, self.next + count) if not is_free(port)]
            if not taken:
                self.next += count
                return self.next - count
            self.next = taken[-1] + 1
        raise RuntimeError(f"no run of {count} free ports between {self.FIRST} and {self.LAST}")

    def one(self):
        return self.run(1)


def is_free(port):
    with socket.socket() as s:
        try:
            s.bind(("0.0.0.0", port))
            return True
        except OSError:
            return False


class OneHost:
    """All nodes here: ports of this run's own instead of the document's."""
    interface, changes_ports = "lo", True

    def __init__(self, ports):
        self.ports = ports

    def address(self, document_host, number):
        return "127.0.0.1"

    def port(self, document_port, count=1):
        return self.ports.run(count)


class OwnHosts:
    """A host for each node, at the document's address where it gives one: nothing is changed."""
    interface, changes_ports = "eth0", False
    NETWORK = "192.0.0"  # where a document leaves the middle of its addresses open, or all of them
    PORTS = {"api": 7100, "kv": 36000, "rpc": 12321, "master": 29500, "proxy": 1999}

    def address(self, document_host, number):
        if re.fullmatch(r"(\d+\.){3}\d+", document_host or ""):
            return document_host
        last = re.fullmatch(r"\d+\.\S+\.(\d+)", document_host or "")
        return f"{self.NETWORK}.{last[1] if last else number + 1}"

    def port(self, document_port, count=1):
        return document_port


@dataclasses.dataclass
class Node:
    """One machine of the document, as one thing that is started here."""
    name: str  # "prefill-0"
    script: object
    host: str
    interface: str
    api_port: int  # of its first engine
    kv_port: int
    engines: int = 1  # that listen for requests, on ports in a row
    rank: int = 0  # of --nnodes
    text: str = ""  # the script, filled in
    command: list = None  # the launcher's words; None: the script is run as it is
    notes: list = dataclasses.field(default_factory=list)
    document_host: str = ""
    document_port: int = 0

    @property
    def endpoints(self):
        """[(address, port)] where its engines answer."""
        return [(self.host, self.api_port + i) for i in range(self.engines)]


@dataclasses.dataclass
class Plan:
    nodes: list
    proxy: list = None  # words
    proxy_host: str = ""
    proxy_port: int = 0
    layerwise: bool = False
    notes: list = dataclasses.field(default_factory=list)

    def of(self, role):
        return [node for node in self.nodes if node.script.role == role]

    @property
    def entrance(self):
        """(address, port) where clients ask."""
        return (self.proxy_host, self.proxy_port) if self.proxy else self.nodes[0].endpoints[0]


class Filler:
    def __init__(self, deployment, placing, folder, flatten=False):
        self.deployment, self.placing, self.folder, self.flatten = deployment, placing, folder, flatten
        self.plan = Plan([], layerwise=deployment.layerwise)
        # One place to meet for each group of nodes, by what the document calls it.
        self.meeting = {}

    def fill(self):
        for role in ("single", "prefill", "decode"):
            for script in self.deployment.of(role):
                self.add_nodes(script)
        for node in self.plan.nodes:
            node.text = self.filled_script(node)
        if self.deployment.proxy is not None:
            self.fill_proxy()
        return self.plan

    def add_nodes(self, script):
        if script.by_launcher:
            starters = [other for other in self.deployment.scripts if other.by_launcher]
            launch = self.deployment.launches[starters.index(script)]
            if launch.number("--dp-rank-start") is None:  # a placeholder: the line is run once on each node
                local = launch.number("--dp-size-local", launch.number("--dp-size"))
                for start in range(0, launch.number("--dp-size"), local):
                    self.add_launched(script, launch, start)
            else:
                self.add_launched(script, launch, launch.number("--dp-rank-start"))
            return
        count = 1 if self.flatten else script.size("nnodes")
        for rank in range(count):
            self.add_node(script, 1 if rank == 0 else 0, script.number("--port", OwnHosts.PORTS["api"]), rank=rank)
        if self.flatten and script.size("nnodes") > 1:
            self.plan.notes.append(f"{script.size('nnodes') - 1} of {script.size('nnodes')} {script.role} nodes not "
                                   "started: their engine is one rank")

    def add_node(self, script, engines, document_port, **more):
        address = self.placing.address(script.local_ip, len(self.plan.nodes))
        written = str(script.connector.get("kv_port", ""))
        kv_port = self.placing.port(int(written) if written.isdigit() else OwnHosts.PORTS["kv"], KV_PORTS)
        node = Node(f"{script.role}-{len(self.plan.of(script.role))}", script, address, self.placing.interface,
                    self.placing.port(document_port, max(1, engines)), kv_port, engines,
                    document_host=script.local_ip or "", document_port=document_port, **more)
        self.plan.nodes.append(node)
        return node

    def add_launched(self, script, launch, rank_start):
        size = launch.number("--dp-size")
        local = launch.number("--dp-size-local", size)
        node = self.add_node(script, 1 if self.flatten else local,
                             launch.number("--vllm-start-port", OwnHosts.PORTS["api"]))
        first = launch.one("--dp-address")
        rpc_port = self.meet(launch.number("--dp-rpc-port", OwnHosts.PORTS["rpc"]), "launcher", first, script.role)
        values = {"--dp-rank-start": rank_start, "--dp-address": self.address_of(first, node),
                  "--dp-rpc-port": rpc_port, "--vllm-start-port": node.api_port}
        if self.flatten:
            values |= {"--dp-size": 1, "--dp-size-local": 1, "--tp-size": 1, "--dp-rank-start": 0,
                       "--dp-address": node.host, "--dp-rpc-port": self.placing.port(OwnHosts.PORTS["rpc"])}
        node.command = with_values(words_of(launch.text), values)

    def address_of(self, document_host, node):
        """Of the machine that the document calls so; a placeholder means the first of the node's role."""
        if PLACEHOLDER.search(document_host):
            return self.plan.of(node.script.role)[0].host
        return self.placing.address(document_host, 0)

    def meet(self, document_port, *who):
        if who not in self.meeting:
            self.meeting[who] = self.placing.port(document_port)
        return self.meeting[who]

    def values(self, node):
        role, ports = node.script.role, OwnHosts.PORTS
        return {"API_PORT": node.api_port, "NODE_RANK": node.rank, "LOCAL_IP": node.host,
                "MASTER_IP": self.plan.of(role)[0].host, "NIC_NAME": self.placing.interface, "KV_PORT": node.kv_port,
                # One engine over several nodes has one id.
                "ENGINE_ID": role if node.script.size("nnodes") > 1 else node.name,
                "MASTER_PORT": self.meet(ports["master"], "master", role),
                "DP_RPC_PORT": self.meet(ports["rpc"], "dp", role),
                "HCCL_BASE_PORT": 45000, "HCCL_PORT_RANGE": "45000-45511",
                "PROFILER_OUTPUT_DIR": f"{self.folder}/profiles", "YOUR_DRAFT_MODEL_PATH": "/no/draft/model"}

    def filled_script(self, node):
        lines = []
        for line in node.script.text.splitlines():
            if HOST_TUNING.match(line):
                node.notes.append(f"left out: {line.strip()}")
                line = f"# left out on this host: {line.strip()}"
            lines.append(line)
        text = replace_placeholders("\n".join(lines) + "\n", self.values(node))
        fixed = {"nic_name": self.placing.interface, "local_ip": node.host,
                 "node0_ip": self.plan.of(node.script.role)[0].host}
        # The launcher reads the port out of the script, so it is changed there.
        text = KV_PORT.sub(lambda m: f"{m[1]}{node.kv_port}{m[2]}", text)
        return HOST_VARIABLE.sub(lambda m: f'{m[1]}{m[2]}="{fixed[m[2]]}"', text)

    def fill_proxy(self):
        options = self.deployment.proxy.options
        words = [replace_placeholders(word, {"VLLM_ASCEND_SOURCE_DIR": f"{self.folder}/source"})
                 for word in options[""]]
        self.plan.proxy_port = self.placing.port(self.deployment.proxy.number("--port", OwnHosts.PORTS["proxy"]))
        # A proxy that listens everywhere stands where the first prefill engine does, as the documents advise.
        host = options.get("--host", ["localhost"])[0]
        wildcard = host == "0.0.0.0"
        self.plan.proxy_host = self.plan.of("prefill")[0].host if wildcard else self.placing.address(host, 0)
        changed = {"--port": [str(self.plan.proxy_port)], "--host": [host if wildcard else self.plan.proxy_host]}
        for role, side in (("prefill", "prefiller"), ("decode", "decoder")):
            found = self.backends(role, options[f"--{side}-hosts"], options[f"--{side}-ports"])
            changed[f"--{side}-hosts"] = [host for host, _ in found]
            changed[f"--{side}-ports"] = [str(port) for _, port in found]
        for name, values in options.items():
            if name:
                words += [name, *changed.get(name, values)]
        self.plan.proxy = words

    def backends(self, role, hosts, ports):
        """[(address, port)] of the engines that the proxy's line names."""
        nodes = self.plan.of(role)
        if len(hosts) != len(ports):
            raise ValueError(f"the proxy's line names {len(hosts)} {role} hosts and {len(ports)} ports")
        found = []
        for host, port in zip(hosts, ports):
            placeholder = re.fullmatch(r"<[A-Z]+(\d+)_IP>", host)
            if placeholder:
                node = nodes[int(placeholder[1])]
                found.append((node.host, node.api_port))
                continue
            node = next((node for node in nodes if node.document_host == host), None)
            if node is None:
                raise ValueError(f"the proxy's line names {role} host {host}, which no script has as its local_ip")
            offset = int(port) - node.document_port
            if offset < node.engines:
                found.append((node.host, node.api_port + offset))
            elif not self.flatten:
                raise ValueError(f"the proxy's line names {host}:{port}, where no engine is started")
        return found


def words_of(text):
    return shlex.split(text.replace("\\\n", " "))


def replace_placeholders(text, values):
    def value(match):
        name = match[1]
        for known in (name, name.partition("_")[2]):
            if known in values:
                return str(values[known])
        raise ValueError(f"placeholder <{name}> is not known")

    return PLACEHOLDER.sub(value, text)


def with_values(words, values):
    """The words with the values of options replaced; options that are not there are put at the end."""
    words = list(words)
    for name, value in values.items():
        if name in words:
            words[words.index(name) + 1] = str(value)
        else:
            words += [name, str(value)]
    return words
