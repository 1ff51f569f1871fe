"""Starts real baton processes for a test and talks to them over real sockets. Standard library only.

Every process a test starts is ended by its pid when the test ends, and that end must be an orderly one: status 0 after
SIGTERM, no signal of its own, no sanitizer's report in its log. All traffic stays on loopback.
"""
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BATON = os.environ.get("BATON_BINARY", str(ROOT / "build/release/src/apps/baton"))
TINY = str(ROOT / "tests/data/tiny_llama")
START_SECONDS = float(os.environ.get("BATON_START_SECONDS", "60"))
STOP_SECONDS = 60
SANITIZER_REPORT = re.compile(r"(WARNING|ERROR): \w+Sanitizer|runtime error:")


TLS = {}  # ports that speak TLS, and the ssl.SSLContext to ask them with


def connect(host, port, timeout):
    if context := TLS.get(port):
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
    return http.client.HTTPConnection(host, port, timeout=timeout)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Process:
    """One baton process; its output goes to a file that a failing test prints."""

    def __init__(self, name, arguments, port, env=None, program=None):
        self.name, self.port, self.killed = name, port, False
        self.log = tempfile.NamedTemporaryFile("w+", prefix=f"baton-{name}-", suffix=".log", delete=False)
        self.popen = subprocess.Popen([program or BATON, *arguments], stdout=self.log, stderr=subprocess.STDOUT,
                                      env={**os.environ, **(env or {})})

    def wait_ready(self, path="/health"):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.popen.poll() is not None:
                raise AssertionError(f"{self.name} ended with {self.popen.returncode}:\n{self.tail()}")
            try:
                if request(self.port, "GET", path)[0] == 200:
                    return self
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"{self.name} not ready:\n{self.tail()}")

    def tail(self, count=40):
        return "".join(pathlib.Path(self.log.name).read_text(errors="replace").splitlines(True)[-count:])

    def kill(self, sig=signal.SIGKILL):
        if self.popen.poll() is None:
            self.killed = self.killed or sig == signal.SIGKILL
            self.popen.send_signal(sig)

    def terminate(self):
        self.kill(signal.SIGTERM)

    def stop(self):
        """SIGTERM, then the exit status."""
        self.terminate()
        return self.wait_end()

    def wait_end(self, timeout=STOP_SECONDS):
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
            raise AssertionError(f"{self.name} did not end within {timeout} s of SIGTERM:\n{self.tail()}")

    def close(self):
        """Ends it. What was wrong with its life or its end, or None."""
        try:
            asked = self.popen.poll() is None
            status = self.stop()
            text = pathlib.Path(self.log.name).read_text(errors="replace")
            if report := SANITIZER_REPORT.search(text):
                return f"{self.name}: a sanitizer's report:\n{text[report.start():][:20000]}"
            if (status < 0 or (asked and status != 0)) and not self.killed:
                return f"{self.name} ended with {status}:\n{self.tail()}"
            return None
        except AssertionError as error:
            return str(error)
        finally:
            self.log.close()
            os.unlink(self.log.name)


def end_all(processes):
    problems = [problem for process in reversed(processes) if (problem := process.close())]
    processes.clear()
    if problems:
        raise AssertionError("\n".join(problems))


def run_to_end(*arguments, timeout=START_SECONDS):
    """A `baton` command that ends by itself: its status and what it said on stderr."""
    ended = subprocess.run([BATON, *arguments], capture_output=True, text=True, errors="replace", timeout=timeout)
    if SANITIZER_REPORT.search(ended.stderr):
        raise AssertionError(f"{arguments}: a sanitizer's report:\n{ended.stderr}")
    return ended.returncode, ended.stderr


def request(port, method, path, body=None, headers=None, timeout=60, host="127.0.0.1"):
    """(status, parsed JSON or text, headers). `body`: bytes, str, or a value to send as JSON."""
    connection = connect(host, port, timeout)
    try:
        sent = dict(headers or {})
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        connection.request(method, path, body, sent)
        response = connection.getresponse()
        data = response.read()
        try:
            parsed = json.loads(data) if data else None
        except ValueError:
            parsed = data.decode(errors="replace")
        return response.status, parsed, dict(response.getheaders())
    finally:
        connection.close()


def post(port, path, body, **kwargs):
    return request(port, "POST", path, body, **kwargs)


def stream(port, path, body, timeout=60, headers=None, host="127.0.0.1"):
    """The data of every event of a streamed answer, [DONE] included; JSON where it is JSON."""
    connection = connect(host, port, timeout)
    try:
        connection.request("POST", path, json.dumps({**body, "stream": True}),
                           {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        data = response.read().decode()
        if response.status != 200:
            raise AssertionError(f"{response.status}: {data}")
        assert response.getheader("Content-Type").startswith("text/event-stream"), response.getheaders()
        events = []
        for block in data.split("\n\n"):
            if not block:
                continue
            assert block.startswith("data: "), block
            payload = block[len("data: "):]
            events.append(payload if payload == "[DONE]" else json.loads(payload))
        return events
    finally:
        connection.close()


def metric(port, name):
    """The sum of a metric's series."""
    _, text, _ = request(port, "GET", "/metrics")
    total, found = 0.0, False
    for line in text.splitlines():
        if line.startswith(name) and line[len(name)] in " {":
            total += float(line.rsplit(" ", 1)[1])
            found = True
    if not found:
        raise AssertionError(f"no metric {name}")
    return total


def wait_until(condition, seconds=10, what="condition"):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"{what} did not hold within {seconds} s")


class ServingTest(unittest.TestCase):
    """Keeps track of processes, class-wide (started in setUpClass) or of one test."""

    @classmethod
    def setUpClass(cls):
        cls.class_processes = []

    @classmethod
    def tearDownClass(cls):
        end_all(cls.class_processes)

    def setUp(self):
        self.processes = []

    def tearDown(self):
        failed = any(error for _, error in getattr(self._outcome, "errors", []) if error)
        for process in reversed(self.processes):
            if failed:
                print(f"--- {process.name}\n{process.tail()}")
        end_all(self.processes)

    @staticmethod
    def engine(name, *flags, model=TINY, port=None, wait=True, env=None, into=None):
        port = port or free_port()
        process = Process(name, ["serve", model, "--host", "127.0.0.1", "--port", str(port),
                                 "--served-model-name", "tiny", "--kv-cache-memory-bytes", "64M", *flags], port, env)
        into.append(process)
        return process.wait_ready() if wait else process

    @classmethod
    def prefill(cls, kv_port, *flags, into, name="prefill", extra=None, **kwargs):
        config = {"kv_connector": "MooncakeConnectorV1", "kv_role": "kv_producer", "kv_port": str(kv_port),
                  "engine_id": name, **(extra or {})}
        return cls.engine(name, "--kv-transfer-config", json.dumps(config), *flags, into=into, **kwargs)

    @classmethod
    def decode(cls, *flags, into, name="decode", extra=None, **kwargs):
        config = {"kv_connector": "MooncakeConnectorV1", "kv_role": "kv_consumer", "kv_port": str(free_port()),
                  "engine_id": name, **(extra or {})}
        return cls.engine(name, "--kv-transfer-config", json.dumps(config), *flags, into=into, **kwargs)

    @staticmethod
    def proxy(prefills, decodes, *flags, into, port=None, wait=True):
        port = port or free_port()
        arguments = ["proxy", "--host", "127.0.0.1", "--port", str(port),
                     "--prefiller-hosts", *["127.0.0.1"] * len(prefills),
                     "--prefiller-ports", *[str(p.port) for p in prefills],
                     "--decoder-hosts", *["127.0.0.1"] * len(decodes),
                     "--decoder-ports", *[str(d.port) for d in decodes], *flags]
        process = Process("proxy", arguments, port)
        into.append(process)
        return process.wait_ready() if wait else process
