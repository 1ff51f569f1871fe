"""Stands before an engine and cuts an answer off after so many bytes, as a process that dies there does.
Standard library only; loopback only."""
import socket
import struct
import threading


class CuttingRelay:
    """Passes everything on to `target`, until cut_next() has been called: then the answer to the next POST of /v1/... ends
    after `count` bytes, by a close or by a reset. `bodies`: what was asked, in order. `before_answer`, if set, is called
    once, when the target has answered such a POST and nobody has heard of it yet."""

    def __init__(self, target):
        self.target, self.bodies, self.cuts, self.before_answer = target, [], [], None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def cut_next(self, count, reset=False):
        self.cuts.append([count, reset])

    def close(self):
        self.listener.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            state = {"cut": [], "asked": False}  # of this connection
            threading.Thread(target=self.requests, args=(client, server, state), daemon=True).start()
            threading.Thread(target=self.answers, args=(client, server, state), daemon=True).start()

    def requests(self, client, server, state):
        try:
            while data := client.recv(1 << 20):
                if data.startswith(b"POST /v1/"):
                    self.bodies.append(data.partition(b"\r\n\r\n")[2])
                    state["asked"] = True
                    if self.cuts:
                        state["cut"] = self.cuts.pop(0)
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def answers(self, client, server, state):
        try:
            while data := server.recv(1 << 16):
                cut = state["cut"]
                if state["asked"] and self.before_answer:
                    call, self.before_answer = self.before_answer, None
                    call()
                if cut and len(data) >= cut[0]:
                    client.sendall(data[:cut[0]])
                    if cut[1]:
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    break
                if cut:
                    cut[0] -= len(data)
                client.sendall(data)
        except OSError:
            pass
        cut = state["cut"]
        for end in (client, server):
            try:
                # Wakes the other thread, which would keep the connection open; a reset must not begin with a FIN.
                end.shutdown(socket.SHUT_RD if cut and cut[1] and end is client else socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()
