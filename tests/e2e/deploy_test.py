"""deploy/: the real sizes must be the guides', and a small deployment must answer, serve and stop as a whole."""
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

import harness
from shim_test import free_ports, members

RUN = str(harness.ROOT / "deploy/run")
# From the guides' launcher lines and key settings: hosts, the launcher or not, ranks of a host, and the grid.
REAL = {
    "deepseek-pull": [("prefill", 2, "launcher", 16, "dp2 pp1 pcp1 tp8 dcp1"),
                      ("decode", 2, "launcher", 16, "dp32 pp1 pcp1 tp1 dcp1")],
    "kimi-k26-single": [("serve", 1, "direct", 16, "dp4 pp1 pcp1 tp4 dcp1")],
    "kimi-k26-pd": [("prefill", 2, "launcher", 16, "dp4 pp1 pcp1 tp4 dcp1"),
                    ("decode", 2, "launcher", 16, "dp8 pp1 pcp1 tp4 dcp1")],
    "kimi-k31-a3": [("prefill", 4, "direct", 16, "dp1 pp4 pcp4 tp4 dcp1"),
                    ("decode", 4, "launcher", 16, "dp4 pp1 pcp1 tp16 dcp16")],
    "kimi-k31-950dt": [("prefill", 4, "direct", 8, "dp1 pp4 pcp8 tp1 dcp1"),
                       ("decode", 4, "launcher", 8, "dp4 pp1 pcp1 tp8 dcp8")],
}
REAL["deepseek-layerwise"] = REAL["deepseek-pull"]
REAL["kimi-k31-a3-1m"], REAL["kimi-k31-950dt-1m"] = REAL["kimi-k31-a3"], REAL["kimi-k31-950dt"]


def run(*arguments, timeout=60, **environment):
    return subprocess.run([RUN, *arguments], capture_output=True, text=True, timeout=timeout, errors="replace",
                          env={**os.environ, "BATON_BINARY": harness.BATON, **environment})


class Deploy(unittest.TestCase):
    def test_the_real_sizes_are_the_guides(self):
        names = {path.stem for path in (harness.ROOT / "deploy").glob("*.sh")}
        self.assertEqual(names, set(REAL))
        for name in names:
            ended = run(name, "--plan", SIZE="real")
            self.assertEqual(ended.returncode, 0, ended.stderr)
            expected = [f"{role} {host}: {start}, {ranks} ranks, {grid}" for role, hosts, start, ranks, grid
                        in REAL[name] for host in range(hosts)]
            self.assertEqual([line.split(", API")[0] for line in ended.stdout.splitlines()], expected, name)

    def test_what_the_hosts_of_the_real_thing_would_run(self):
        """Every node's command line is one that Baton takes: it gets as far as the model that is not there."""
        for name, roles in REAL.items():
            for role, hosts, start, _, grid in roles:
                with tempfile.TemporaryDirectory() as work:
                    addresses = " ".join(["127.0.0.1"] * hosts)
                    ended = run(name, role, str(hosts - 1), SIZE="real", MODEL="/no/such/model", WORK=work,
                                PREFILL_HOSTS=addresses, DECODE_HOSTS=addresses, SERVE_HOSTS=addresses)
                    if start == "launcher":
                        # The launch itself may find the guides' ports in use here.
                        sizes = dict(re.findall(r"([a-z]+)(\d+)", grid))
                        template = next(pathlib.Path(work).glob("*/run_dp_template.sh"))
                        ended = subprocess.run(
                            ["bash", template, "0", "7100", sizes["dp"], "0", "127.0.0.1", "12321", sizes["tp"]],
                            capture_output=True, text=True, timeout=60,
                            env={**os.environ, "BATON_BINARY": harness.BATON})
                    said = ended.stdout + ended.stderr
                    self.assertEqual(ended.returncode, 2, (name, role, said))
                    if "MooncakeLayerwiseConnector" not in said:
                        self.assertIn("/no/such/model", said, (name, role))

    def test_mistakes_are_told(self):
        self.assertIn("no deployment 'nope'", run("nope").stderr)
        self.assertIn("tiny, one or real", run("deepseek-pull", SIZE="huge").stderr)
        self.assertIn("each host runs its part", run("deepseek-pull", SIZE="real").stderr)
        self.assertIn("must name the 2 prefill hosts",
                      run("deepseek-pull", "prefill", "0", SIZE="real", MODEL="m", PREFILL_HOSTS="a").stderr)
        self.assertIn("2 prefill hosts: 0 to 1", run("deepseek-pull", "prefill", "7", SIZE="one", MODEL="m").stderr)

    def test_it_answers_and_a_stop_ends_all_of_it(self):
        with tempfile.TemporaryDirectory() as work:
            work = str(pathlib.Path(work).resolve())
            log = open(pathlib.Path(work) / "said", "w+")
            popen = subprocess.Popen([RUN, "deepseek-pull"], stdout=log, stderr=subprocess.STDOUT,
                                     env={**os.environ, "BATON_BINARY": harness.BATON, "SIZE": "one", "WORK": work,
                                          "PROXY_PORT": str(free_ports(1)), "BASE_PORT": str(23000 + os.getpid() % 1000)})
            said = lambda: pathlib.Path(log.name).read_text(errors="replace")
            try:
                deadline = time.monotonic() + harness.START_SECONDS + 60
                while "until Ctrl-C" not in said():
                    self.assertIsNone(popen.poll(), said())
                    self.assertLess(time.monotonic(), deadline, said())
                    time.sleep(0.1)
                self.assertRegex(said(), r"output tokens +24")
                folders = [pathlib.Path(work) / f"{role}-{i}" for role in ("prefill", "decode") for i in (0, 1)]
                for folder in folders:
                    self.assertNotEqual(members(folder), [], folder)
                popen.send_signal(signal.SIGINT)
                self.assertEqual(popen.wait(harness.STOP_SECONDS), 0, said())
                for folder in folders:
                    self.assertEqual(members(folder), [], folder)
            finally:
                if popen.poll() is None:
                    popen.terminate()
                    popen.wait(harness.STOP_SECONDS)
                log.close()


if __name__ == "__main__":
    unittest.main()
