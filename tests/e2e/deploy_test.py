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
                    self.assertIn("/no/such/model", said, (name, role))

    def test_mistakes_are_told(self):
        self.assertIn("no deployment 'nope'", run("nope").stderr)
        self.assertIn("tiny, one or real", run("deepseek-pull", SIZE="huge").stderr)
        self.assertIn("each host runs its part", run("deepseek-pull", SIZE="real").stderr)
        self.assertIn("must name the 2 prefill hosts",
                      run("deepseek-pull", "prefill", "0", SIZE="real", MODEL="m", PREFILL_HOSTS="a").stderr)
        self.assertIn("2 prefill hosts: 0 to 1", run("deepseek-pull", "prefill", "7", SIZE="one", MODEL="m").stderr)

    def test_it_answers_and_a_stop_ends_all_of_it(self):
        with Running(self, "deepseek-pull", "one") as deployment:
            self.assertRegex(deployment.said(), r"output tokens +24")
            folders = [deployment.work / f"{role}-{i}" for role in ("prefill", "decode") for i in (0, 1)]
            for folder in folders:
                self.assertNotEqual(members(folder), [], folder)
            self.assertEqual(deployment.end(signal.SIGINT), 0, deployment.said())
            for folder in folders:
                self.assertEqual(members(folder), [], folder)

    def test_ranks_and_replicas_give_the_answers_of_one_rank(self):
        """P of two groups of dp2 tp2, D of dp4 that share experts, by the launcher: as every engine of one rank."""
        bodies = [{"model": "ds_r1", "prompt": [260 + i * 7 % 200 for i in range(length)], "max_tokens": 12, "seed": 5,
                   "temperature": temperature, "logprobs": 2} for length, temperature in ((50, 0), (1700, 0.9))]
        answers = []
        for name, size in (("deepseek-pull", "tiny"), ("deepseek-layerwise", "tiny"), ("deepseek-pull", "one")):
            with Running(self, name, size) as deployment:
                answers.append([])
                for body in bodies:
                    status, answer, _ = harness.post(deployment.port, "/v1/completions", body)
                    self.assertEqual(status, 200, answer)
                    answers[-1].append(answer["choices"])
                self.assertEqual(deployment.end(signal.SIGTERM), 0, deployment.said())
        self.assertEqual(answers[0], answers[2])
        self.assertEqual(answers[1], answers[2])


class Running:
    """A deployment on this machine, from its start until it serves."""

    def __init__(self, test, name, size):
        self.folder = tempfile.TemporaryDirectory()
        self.work = pathlib.Path(self.folder.name).resolve()
        self.port = free_ports(1)
        self.log = open(self.work / "said", "w+")
        self.popen = subprocess.Popen(
            [RUN, name], stdout=self.log, stderr=subprocess.STDOUT,
            env={**os.environ, "BATON_BINARY": harness.BATON, "SIZE": size, "WORK": str(self.work),
                 "PROXY_PORT": str(self.port), "BASE_PORT": str(23000 + os.getpid() % 1000)})
        self.test = test

    def said(self):
        return (self.work / "said").read_text(errors="replace")

    def __enter__(self):
        deadline = time.monotonic() + harness.START_SECONDS + 60
        try:
            while "until Ctrl-C" not in self.said():
                ended = self.popen.poll() is not None
                if ended and any("more than one rank is not in this version" in path.read_text(errors="replace")
                                 for path in self.work.rglob("*.log")):
                    self.test.skipTest("this baton has engines of one rank alone")
                self.test.assertFalse(ended, self.said())
                self.test.assertLess(time.monotonic(), deadline, self.said())
                time.sleep(0.1)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.popen.poll() is None:
            self.end(signal.SIGTERM)
        self.log.close()
        self.folder.cleanup()

    def end(self, sig):
        self.popen.send_signal(sig)
        return self.popen.wait(harness.STOP_SECONDS)


if __name__ == "__main__":
    unittest.main()
