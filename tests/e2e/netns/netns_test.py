"""Prefill, decode and proxy on hosts of their own: network namespaces, joined by cables that are cut and mended.

What must hold: no request hangs; what is answered is what one engine alone answers, also while a cable is cut; after it is
mended requests are served again by everyone; nothing stays reserved.
"""
import json
import pathlib
import sys
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import harness  # noqa: E402
import namespaces  # noqa: E402
from harness import wait_until  # noqa: E402

PORT, KV_PORT = 8100, 36000
LONG = "Either the well was very deep, or she fell very slowly, for she had plenty of time. " * 40
GREEDY = {"model": "tiny", "prompt": LONG, "max_tokens": 10, "temperature": 0, "return_token_ids": True,
          "ignore_eos": True}
SEEDED = {**GREEDY, "prompt": LONG[100:], "temperature": 1, "seed": 11}
# Deadlines short enough for a test; every one of them is a flag.
PROXY_FLAGS = ["--connect-timeout", "1", "--prefill-timeout", "8", "--first-token-timeout", "25", "--idle-timeout", "6",
               "--probe-interval", "0.5", "--probe-timeout", "1"]
LEASE_S = 6
ANSWER_SECONDS = 60  # of a client: far above all deadlines together
REASON = namespaces.why_not()


class HostProcess(harness.Process):
    """A process on a host; asked from the host of the client."""

    def __init__(self, host, name, arguments, **kwargs):
        self.host = host
        with host.inside():
            super().__init__(name, arguments, PORT, **kwargs)


class Lab:
    """Requests from the client's host to the others."""

    def __init__(self, *names):
        self.network = namespaces.Network("client", *names)
        self.client = self.network["client"]

    def ask(self, host, path, body=None, timeout=ANSWER_SECONDS):
        with self.client.inside():
            return harness.request(PORT, "POST" if body else "GET", path, body, timeout=timeout, host=host.address)

    def wait_ready(self, process, path="/health"):
        """Asked from the client's host: that is where it must be reached from."""
        def up():
            if process.popen.poll() is not None:
                raise AssertionError(f"{process.name} ended with {process.popen.returncode}:\n{process.tail()}")
            try:
                return self.ask(process.host, path, timeout=2)[0] == 200
            except OSError:
                return False

        wait_until(up, harness.START_SECONDS, f"{process.name} is ready")

    def metric(self, host, name):
        """Asked on the host itself: its cable may be cut."""
        with host.inside():
            return harness.metric(PORT, name)


@unittest.skipIf(REASON, REASON)
class Hosts(unittest.TestCase):
    DECODES = ("decode0", "decode1")

    def setUp(self):
        self.lab = Lab("prefill", *self.DECODES, "proxy", "alone")
        self.processes = {}
        try:
            self.start_all()
        except BaseException:
            self.tearDown()
            raise

    def tearDown(self):
        failed = self._outcome is None or not self._outcome.success
        processes = list(self.processes.values())
        for process in processes if failed else []:
            print(f"--- {process.name}\n{process.tail(25)}")
        try:
            harness.end_all(processes)
        finally:
            self.lab.network.close()

    def host(self, name):
        return self.lab.network[name]

    def start_all(self):
        for name in ("alone", "prefill", *self.DECODES):
            self.start_engine(name)
        for name in list(self.processes):
            self.wait_ready(name)
        arguments = ["proxy", "--host", self.host("proxy").address, "--port", str(PORT),
                     "--prefiller-hosts", self.host("prefill").address, "--prefiller-ports", str(PORT),
                     "--decoder-hosts", *[self.host(name).address for name in self.DECODES],
                     "--decoder-ports", *[str(PORT)] * len(self.DECODES), *PROXY_FLAGS]
        self.processes["proxy"] = HostProcess(self.host("proxy"), "proxy", arguments)
        self.wait_ready("proxy")

    def wait_ready(self, name):
        self.lab.wait_ready(self.processes[name], "/healthcheck" if name == "proxy" else "/health")

    def start_engine(self, name):
        arguments = ["serve", harness.TINY, "--host", "0.0.0.0", "--port", str(PORT), "--served-model-name", "tiny",
                     "--kv-cache-memory-bytes", "64M"]
        if name != "alone":
            config = {"kv_connector": "MooncakeConnectorV1", "engine_id": name, "kv_port": str(KV_PORT),
                      "kv_role": "kv_producer" if name == "prefill" else "kv_consumer",
                      "kv_connector_extra_config": {"baton_transport": "tcp", "kv_lease_duration": LEASE_S}}
            arguments += ["--kv-transfer-config", json.dumps(config)]
        host = self.host(name)
        # As on real hosts: the address to listen on and to tell others comes from the environment.
        self.processes[name] = HostProcess(host, name, arguments, env={"VLLM_HOST_IP": host.address})

    def answer(self, host, body):
        status, answer, _ = self.lab.ask(self.host(host), "/v1/completions", body)
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]["token_ids"]

    def check_served(self, body=None):
        """Through the proxy as alone, and not slower than all deadlines."""
        body = body or GREEDY
        began = time.monotonic()
        self.assertEqual(self.answer("proxy", body), self.answer("alone", body))
        return time.monotonic() - began

    def check_nothing_reserved(self):
        wait_until(lambda: self.lab.metric(self.host("prefill"), "baton:kv_offers_held") == 0, 4 * LEASE_S,
                   "prefill's offers are free")
        for name in self.DECODES:
            wait_until(lambda: self.lab.metric(self.host(name), "vllm:num_requests_running") == 0, 30, f"{name} is idle")
            self.assertEqual(self.lab.metric(self.host(name), "baton:last_token_mismatches_total"), 0)

    def moved(self):
        return sum(self.lab.metric(self.host(name), "vllm:mooncake_bytes_transferred_sum") for name in self.DECODES)

    def in_background(self, body):
        """An event stream through the proxy: (thread, what it gave: events or error)."""
        result = {"events": []}

        def run():
            try:
                import http.client
                with self.lab.client.inside():
                    connection = http.client.HTTPConnection(self.host("proxy").address, PORT, timeout=ANSWER_SECONDS)
                    connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}),
                                       {"Content-Type": "application/json"})
                    response = connection.getresponse()
                    result["status"] = response.status
                    for line in response:  # ends with the answer
                        if line.startswith(b"data: "):
                            data = line[6:].strip().decode()
                            result["events"].append(data if data == "[DONE]" else json.loads(data))
                    connection.close()
            except OSError as error:
                result["error"] = error

        thread = threading.Thread(target=run)
        thread.start()
        return thread, result

    def join(self, thread):
        thread.join(ANSWER_SECONDS + 5)
        self.assertFalse(thread.is_alive(), "a request hangs")

    def test_hosts_of_their_own(self):
        for body in (GREEDY, SEEDED, {**GREEDY, "prompt": "x", "max_tokens": 3}):
            self.check_served(body)
        self.assertGreater(self.moved(), 100_000)
        self.check_nothing_reserved()

    def test_prefill_cut_off_between_requests(self):
        self.check_served()
        self.host("prefill").cut()
        took = self.check_served(SEEDED)  # decode computes the prompt itself
        self.assertLess(took, 40)
        self.host("prefill").restore()
        before = self.lab.metric(self.host("prefill"), "vllm:prompt_tokens_total")

        def used_again():
            self.check_served({**GREEDY, "prompt": LONG[31:]})
            return self.lab.metric(self.host("prefill"), "vllm:prompt_tokens_total") > before

        wait_until(used_again, 40, "prefill is used again")
        self.check_nothing_reserved()

    def test_decode_cut_off_in_mid_stream(self):
        self.check_served()
        thread, result = self.in_background({**GREEDY, "max_tokens": 3000})
        wait_until(lambda: len(result["events"]) > 5, 20, "tokens flow")
        busy = next(name for name in self.DECODES
                    if self.lab.metric(self.host(name), "vllm:num_requests_running") > 0)
        self.host(busy).cut()
        self.assertLess(self.check_served(SEEDED), 45)  # the other one serves
        self.join(thread)
        self.assertEqual(result.get("error"), None)
        self.assertEqual(result["events"][-1], "[DONE]")
        # The other one went on where this one stopped.
        tokens = [token for event in result["events"][:-1] for choice in event["choices"] for token in choice["token_ids"]]
        self.assertEqual(tokens, self.answer("alone", {**GREEDY, "max_tokens": 3000}))
        self.host(busy).restore()
        before = self.lab.metric(self.host(busy), "vllm:generation_tokens_total")
        wait_until(lambda: self.lab.metric(self.host(busy), "vllm:num_requests_running") == 0, 90,
                   "the cut-off decode engine is idle")

        def used_again():
            self.check_served({**GREEDY, "prompt": LONG[62:]})
            return self.lab.metric(self.host(busy), "vllm:generation_tokens_total") > before

        wait_until(used_again, 40, f"{busy} is used again")
        self.check_nothing_reserved()

    def test_the_cable_breaks_while_kv_is_moved(self):
        expected = self.answer("alone", GREEDY)
        self.host("prefill").slow("2mbit")  # about a second of hand-off
        thread, result = self.in_background(GREEDY)
        wait_until(lambda: self.lab.metric(self.host("prefill"), "baton:kv_offers_held") > 0, 20, "an offer")
        time.sleep(0.4)
        self.host("prefill").cut()
        self.join(thread)
        self.assertEqual(result.get("error"), None)
        ids = [i for e in result["events"][:-1] for c in e.get("choices", []) for i in c.get("token_ids") or []]
        self.assertEqual(ids, expected, result["events"][-3:])
        self.assertGreater(sum(self.lab.metric(self.host(name), "baton:kv_transfer_failures_total")
                               for name in self.DECODES), 0)
        self.host("prefill").slow(None)
        self.host("prefill").restore()
        self.check_served(SEEDED)
        self.check_nothing_reserved()

    def test_a_node_is_lost_and_comes_back(self):
        self.check_served()
        self.processes["prefill"].kill()
        self.host("prefill").cut()  # no reset reaches anyone, as when a machine loses its power
        self.processes.pop("prefill").close()
        for body in (SEEDED, GREEDY):
            self.assertLess(self.check_served(body), 40)
        self.host("prefill").restore()
        self.start_engine("prefill")
        self.wait_ready("prefill")

        def used_again():
            self.check_served({**GREEDY, "prompt": LONG[31:]})
            return self.lab.metric(self.host("prefill"), "vllm:prompt_tokens_total") > 0

        wait_until(used_again, 40, "the new prefill engine is used")
        self.check_nothing_reserved()


if __name__ == "__main__":
    unittest.main()
