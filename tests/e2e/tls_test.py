"""Every hop of a deployment over TLS with certificates on both sides, keys and a secret; and what happens without."""
import http.client
import pathlib
import ssl
import subprocess
import tempfile
import unittest

import harness
from harness import free_port, metric, post, run_to_end, stream, wait_until

KEY = {"Authorization": "Bearer the key"}
BODY = {"prompt": "Either the well was very deep, or she fell very slowly. " * 10, "max_tokens": 12, "temperature": 1,
        "seed": 3}


class Certificates:
    """An authority, and the certificates it gave to a server (localhost, 127.0.0.1) and to a client."""

    def __init__(self, folder, name):
        self.folder, self.name = pathlib.Path(folder), name
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
                     "-subj", f"/CN={name}", "-keyout", self.path("ca.key"), "-out", self.path("ca.pem"))
        self.ca = self.path("ca.pem")
        self.issue("server", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        self.issue("client", "extendedKeyUsage=clientAuth")

    def path(self, name):
        return str(self.folder / f"{self.name}-{name}")

    @staticmethod
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)

    def issue(self, name, extension):
        pathlib.Path(self.path("ext")).write_text(extension)
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                     "-keyout", self.path(f"{name}.key"), "-out", self.path("csr"))
        self.openssl("x509", "-req", "-in", self.path("csr"), "-CA", self.ca, "-CAkey", self.path("ca.key"),
                     "-CAcreateserial", "-days", "1", "-extfile", self.path("ext"), "-out", self.path(f"{name}.pem"))

    def pair(self, name):
        return self.path(f"{name}.pem"), self.path(f"{name}.key")

    def context(self, with_certificate=True):
        context = ssl.create_default_context(cafile=self.ca)
        if with_certificate:
            context.load_cert_chain(*self.pair("client"))
        return context


class Secure(harness.ServingTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = tempfile.TemporaryDirectory()
        cls.good, cls.other = (Certificates(cls.folder.name, name) for name in ("good", "other"))
        cls.alone = cls.engine("alone", into=cls.class_processes)
        cls.expected = post(cls.alone.port, "/v1/completions", BODY)[1]["choices"][0]["text"]

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def tearDown(self):
        super().tearDown()
        harness.TLS.clear()

    def listening(self):
        """A port that will speak TLS, and the flags of who listens there."""
        port = free_port()
        harness.TLS[port] = self.good.context()
        cert, key = self.good.pair("server")
        return port, ("--ssl-certfile", cert, "--ssl-keyfile", key, "--ssl-ca-certs", self.good.ca,
                      "--ssl-cert-reqs", "2", "--api-key", "another key", "--api-key", "the key")

    def handoff(self, connector, **changes):
        cert, key = self.good.pair("server")
        return {"kv_connector": connector, "kv_connector_extra_config": {
            "baton_transport": "tcp", "baton_secret": "sesame", "baton_tls_cert": cert, "baton_tls_key": key,
            "baton_tls_ca": self.good.ca, **changes}}

    def deploy(self, mode="pull", connector="MooncakeConnectorV1", **changes):
        engines = []
        for start, arguments, changed in ((self.prefill, (free_port(),), {}), (self.decode, (), changes)):
            port, flags = self.listening()
            engines.append(start(*arguments, *flags, port=port, extra=self.handoff(connector, **changed),
                                 into=self.processes))
        port, flags = self.listening()
        cert, key = self.good.pair("client")
        proxy = self.proxy(engines[:1], engines[1:], *flags, "--mode", mode, "--engine-ssl-ca-certs", self.good.ca,
                           "--engine-ssl-certfile", cert, "--engine-ssl-keyfile", key, port=port, into=self.processes)
        return *engines, proxy

    def ask(self, port):
        status, answer, _ = post(port, "/v1/completions", BODY, headers=KEY)
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]["text"]

    def test_pull(self):
        p, d, proxy = self.deploy()
        self.assertEqual(self.ask(proxy.port), self.expected)
        events = stream(proxy.port, "/v1/completions", {**BODY, "cache_salt": "other"}, headers=KEY)
        self.assertEqual("".join(c["text"] for e in events[:-1] for c in e["choices"]), self.expected)
        self.assertGreater(metric(d.port, "vllm:mooncake_bytes_transferred_sum"), 50000)
        self.assertEqual(metric(d.port, "vllm:mooncake_num_failed_transfers"), 0)
        for process in (p, d, proxy):
            self.refuses_strangers(process.port)

    def refuses_strangers(self, port):
        self.assertEqual(post(port, "/v1/completions", BODY)[0], 401)
        strangers = [self.good.context(with_certificate=False), self.other.context(), None]
        strangers[1].load_verify_locations(self.good.ca)
        for context in strangers:
            with self.assertRaises((OSError, http.client.HTTPException)):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10) if context is None else \
                    http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
                connection.request("GET", "/health")
                connection.getresponse()
        # And nobody who trusts another authority believes it.
        with self.assertRaises(ssl.SSLCertVerificationError):
            connection = http.client.HTTPSConnection("127.0.0.1", port, context=self.other.context(), timeout=10)
            connection.request("GET", "/health")

    def test_layerwise_calls_the_proxy_back_over_tls(self):
        p, d, proxy = self.deploy("layerwise", "MooncakeLayerwiseConnector")
        self.assertEqual(self.ask(proxy.port), self.expected)
        self.assertGreater(metric(d.port, "vllm:mooncake_bytes_transferred_sum"), 50000)
        self.assertEqual(metric(proxy.port, "baton_proxy_metaserver_calls_total"), 1)

    def test_a_peer_without_the_secret_or_a_certificate_gets_nothing(self):
        cert, key = self.other.pair("server")
        for changes in ({"baton_secret": "sesam"}, {"baton_tls_cert": cert, "baton_tls_key": key},
                        {"baton_tls_ca": self.other.ca}, {"baton_tls_cert": "", "baton_tls_key": "",
                                                          "baton_tls_ca": ""}):
            with self.subTest(changes=list(changes)):
                p, d, proxy = self.deploy(**changes)
                self.assertEqual(self.ask(proxy.port), self.expected, "computed at D instead")
                self.assertEqual(metric(d.port, "vllm:mooncake_bytes_transferred_sum"), 0)
                self.assertGreater(metric(d.port, "vllm:mooncake_num_failed_transfers"), 0)
                harness.end_all(self.processes)

    def test_engines_that_the_proxy_cannot_trust_are_down(self):
        port, flags = self.listening()
        engine = self.engine("engine", *flags, port=port, into=self.processes)
        proxy = self.proxy([engine], [engine], "--engine-ssl-ca-certs", self.other.ca, into=self.processes, wait=False)
        wait_until(lambda: "certificate verify failed" in proxy.tail(), 20, "the reason is logged")
        self.assertEqual(harness.request(proxy.port, "GET", "/health")[0], 503)

    def test_wrong_files_are_named_at_the_start(self):
        status, said = run_to_end("proxy", "--port", str(free_port()), "--engine-ssl-ca-certs", "/no/such/ca.pem")
        self.assertNotEqual(status, 0)
        self.assertIn("/no/such/ca.pem", said)
        config = '{"kv_connector": "MooncakeConnectorV1", "kv_role": "kv_consumer", "engine_id": "d", ' \
                 '"kv_connector_extra_config": {"baton_tls_ca": "/no/such/ca.pem"}}'
        status, said = run_to_end("serve", harness.TINY, "--port", str(free_port()), "--kv-transfer-config", config)
        self.assertNotEqual(status, 0)
        self.assertIn("/no/such/ca.pem", said)


if __name__ == "__main__":
    unittest.main()
