"""SIGTERM amid traffic: every process ends with status 0, in time, in whatever order they are told to.

BATON_SHUTDOWN_ROUNDS (3) rounds a test, at moments and in orders drawn from BATON_SHUTDOWN_SEED (1).
"""
import http.client
import json
import os
import random
import threading
import time
import unittest

import harness
from harness import free_port, wait_until

ROUNDS = int(os.environ.get("BATON_SHUTDOWN_ROUNDS", "3"))
SEED = int(os.environ.get("BATON_SHUTDOWN_SEED", "1"))
PROMPT = "Either the well was very deep, or she fell very slowly, for she had plenty of time. "


class Traffic:
    """Clients that ask, stream, and hang up in mid-stream, until told to stop; they expect nothing."""

    def __init__(self, port, clients=6):
        self.port, self.ending, self.answered = port, threading.Event(), 0
        self.threads = [threading.Thread(target=self.run, args=(random.Random(i),)) for i in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self, draw):
        while not self.ending.is_set():
            try:
                self.ask(draw)
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)

    def ask(self, draw):
        body = {"prompt": PROMPT * draw.choice([1, 4, 20]), "max_tokens": draw.choice([1, 8, 200]), "temperature": 1,
                "n": draw.choice([1, 1, 3]), "stream": draw.random() < 0.6}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if draw.random() < 0.3:
                response.read(1)
            else:
                response.read()
            self.answered += response.status == 200
        finally:
            connection.close()

    def end(self):
        self.ending.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), "a client is stuck"


class ShutdownUnderLoad(harness.ServingTest):
    def stop_in_traffic(self, port, processes, draw):
        traffic = Traffic(port)
        try:
            wait_until(lambda: traffic.answered > 0, 120, "an answer")
            time.sleep(draw.uniform(0, 0.3))
            for process in processes:
                process.terminate()
                time.sleep(draw.choice([0, 0, draw.uniform(0, 0.2)]))
            for process in processes:
                self.assertEqual(process.wait_end(), 0, process.tail())
        finally:
            traffic.end()
        harness.end_all(self.processes)

    def test_engine(self):
        draw = random.Random(SEED)
        for _ in range(ROUNDS):
            engine = self.engine("engine", into=self.processes)
            self.stop_in_traffic(engine.port, [engine], draw)

    def test_prefill_decode_and_proxy_in_any_order(self):
        draw = random.Random(SEED)
        for _ in range(ROUNDS):
            p, d = self.prefill(free_port(), into=self.processes), self.decode(into=self.processes)
            proxy = self.proxy([p], [d], "--drain-timeout", "1", into=self.processes)
            order = [p, d, proxy]
            draw.shuffle(order)
            self.stop_in_traffic(proxy.port, order, draw)

    def test_while_the_model_loads(self):
        draw = random.Random(SEED)
        for _ in range(ROUNDS):
            engine = self.engine("engine", "--enforce-eager", wait=False, into=self.processes)
            wait_until(lambda: "enforce-eager" in engine.tail(), 60, "the start is logged")
            time.sleep(draw.uniform(0, 1))
            self.assertEqual(engine.stop(), 0, engine.tail())
            harness.end_all(self.processes)

    def test_twice_ends_at_once(self):
        """The second SIGTERM doesn't wait for the request that the first one let go on."""
        engine = self.engine("engine", "--shutdown-timeout", "600", into=self.processes)
        traffic = Traffic(engine.port, clients=3)
        try:
            wait_until(lambda: traffic.answered > 0, 120, "an answer")
            engine.terminate()
            wait_until(lambda: "action=stopping" in engine.tail(), what="the first signal is seen")
            self.assertEqual(engine.stop(), 0, engine.tail())
        finally:
            traffic.end()


if __name__ == "__main__":
    unittest.main()
