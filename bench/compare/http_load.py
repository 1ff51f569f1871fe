"""A server as a side of a comparison, and streamed completions on it from one thread: the client must cost little, since
it shares the server's cores."""
import http.client
import json
import os
import random
import selectors
import signal
import socket
import subprocess
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ServerSide:
    """A server on this machine. command: with its port already in it."""

    def __init__(self, command, port, model, vocab, log, environment=None, patience_s=300):
        self.port, self.model, self.vocab = port, model, vocab
        self.random = random.Random(1)
        self.log = open(log, "wb")
        self.process = subprocess.Popen([str(word) for word in command], stdout=self.log, stderr=subprocess.STDOUT,
                                        env={**os.environ, **(environment or {})}, start_new_session=True)
        end = time.monotonic() + patience_s
        while not self.healthy():
            if self.process.poll() is not None or time.monotonic() > end:
                self.close()
                raise SystemExit(f"{command[0]} did not come up: {log}")
            time.sleep(0.2)

    def healthy(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def request(self, prompt, output):
        """A prompt of token ids, so that no side tokenises and no prefix is cached."""
        body = json.dumps({"model": self.model, "prompt": [self.random.randrange(10, self.vocab) for _ in range(prompt)],
                           "max_tokens": output, "temperature": 0, "ignore_eos": True, "stream": True}).encode()
        return (b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)) + body

    def measure(self, requests, prompt, output):
        """All at once; tokens a second from the first byte sent to the last byte received."""
        bodies = [self.request(prompt, output) for _ in range(requests)]
        selector = selectors.DefaultSelector()
        began = time.monotonic()
        for body in bodies:
            stream = socket.create_connection(("127.0.0.1", self.port))
            stream.sendall(body)
            selector.register(stream, selectors.EVENT_READ, [b"", 0])
        while selector.get_map():
            events = selector.select(timeout=120)
            if not events:
                raise SystemExit("a server said nothing for two minutes")
            for key, _ in events:
                part = key.fileobj.recv(1 << 16)
                if not part:
                    self.finish(selector, key)
                    continue
                key.data[0] = (key.data[0] + part)[-256:] if key.data[1] else key.data[0] + part
                key.data[1] += len(part)
        return {"decode": requests * output / (time.monotonic() - began)}

    @staticmethod
    def finish(selector, key):
        selector.unregister(key.fileobj)
        key.fileobj.close()
        if b"[DONE]" not in key.data[0]:
            raise SystemExit(f"a stream ended with {key.data[0][-200:]!r}")

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.log.close()
