"""The names of the public guides (shim/): their command lines must run as they stand, and a launch must end as a whole.

Real launchers, engines and proxies; templates in the guides' form: a shell script of seven arguments that runs
`vllm serve` without exec.
"""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import harness
from harness import post, request, wait_until

SHIM = harness.ROOT / "shim"
ENGINE_TEMPLATE = """#!/usr/bin/env bash
set -euo pipefail
export VLLM_HOST_IP=127.0.0.1
export GLOO_SOCKET_IFNAME=lo
export OMP_NUM_THREADS=1
export ASCEND_RT_VISIBLE_DEVICES="$1"
vllm serve '{model}' \\
  --host 127.0.0.1 \\
  --port "$2" \\
  --data-parallel-size "$3" \\
  --data-parallel-size-local 1 \\
  --data-parallel-rank "$4" \\
  --data-parallel-address "$5" \\
  --data-parallel-rpc-port "$6" \\
  --tensor-parallel-size "$7" \\
  --seed 1024 \\
  --served-model-name tiny \\
  --kv-cache-memory-bytes 32M \\
  --additional-config '{{"enable_shared_expert_dp":false,"finegrained_tp_config":{{"lmhead_tensor_parallel_size":1}}}}' \\
  --kv-transfer-config \\
  '{{"kv_connector": "MooncakeConnectorV1",
  "kv_role": "{role}",
  "kv_port": "{kv_port}",
  "engine_id": "{role}",
  "kv_connector_extra_config": {{
            "prefill": {{ "dp_size": 2, "tp_size": 1 }},
            "decode": {{ "dp_size": 2, "tp_size": 1 }}
      }}
  }}'
"""
BODY = {"model": "tiny", "prompt": "The rabbit-hole went straight on like a tunnel. " * 20, "max_tokens": 16,
        "temperature": 0.8, "seed": 3, "logprobs": 2}


NEXT_PORT = [21000 + os.getpid() % 300 * 30]  # below the range that the kernel hands out


def free_ports(count):
    """The first of `count` free ports in a row, given out once."""
    for first in range(NEXT_PORT[0], 32000):
        NEXT_PORT[0] = first + count
        sockets = []
        try:
            for port in range(first, first + count):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    raise AssertionError("no free ports")


def members(folder):
    """Processes that were started in `folder`, by pid."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "cwd") == str(folder) and (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass
    return found


class Launcher:
    """`python launch_online_dp.py` in a folder of its own with a template."""

    def __init__(self, template, *flags, dp_size=2, ports=None, script=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="baton-launch-")).resolve()
        (self.folder / "run_dp_template.sh").write_text(template)
        if script is None:
            shutil.copy(SHIM / "launch_online_dp.py", self.folder)
            script = "launch_online_dp.py"
        self.port, self.dp_size = ports or free_ports(dp_size), dp_size
        self.popen = subprocess.Popen(
            [sys.executable, script, "--dp-size", str(dp_size), "--tp-size", "1", "--dp-size-local", str(dp_size),
             "--dp-rank-start", "0", "--dp-address", "127.0.0.1", "--dp-rpc-port", str(free_ports(1)),
             "--vllm-start-port", str(self.port), *flags],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "PATH": f"{SHIM}:{os.environ['PATH']}", "BATON_BINARY": harness.BATON})

    def wait_ready(self):
        deadline = time.monotonic() + harness.START_SECONDS
        waiting = set(range(self.port, self.port + self.dp_size))
        while waiting:
            if self.popen.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"not ready: {waiting}\n{self.end()[1]}")
            for port in list(waiting):
                try:
                    if request(port, "GET", "/health")[0] == 200:
                        waiting.discard(port)
                except OSError:
                    time.sleep(0.05)
        return self

    def end(self, sig=signal.SIGTERM):
        """Its exit status and all it said."""
        if self.popen.poll() is None:
            self.popen.send_signal(sig)
        return self.wait_end()

    def wait_end(self):
        try:
            said, _ = self.popen.communicate(timeout=harness.STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            raise
        return self.popen.returncode, said

    def log(self, rank):
        return (self.folder / "logs" / f"dp{rank}_port{self.port + rank}.log").read_text()

    def close(self):
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.communicate()
        for pid in members(self.folder):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


class Shim(harness.ServingTest):
    def launch(self, *arguments, **options):
        launcher = Launcher(*arguments, **options)
        self.addCleanup(launcher.close)
        return launcher

    def shim(self, *command, **options):
        return subprocess.run(command, capture_output=True, text=True, timeout=60,
                              env={**os.environ, "PATH": f"{SHIM}:{os.environ['PATH']}",
                                   "BATON_BINARY": harness.BATON}, **options)

    def test_a_guides_deployment_from_templates_to_an_answer(self):
        kv = free_ports(6)
        prefill = self.launch(ENGINE_TEMPLATE.format(model=harness.TINY, role="kv_producer", kv_port=kv))
        decode = self.launch(ENGINE_TEMPLATE.format(model=harness.TINY, role="kv_consumer", kv_port=kv + 3),
                             script=str(SHIM / "examples/external_online_dp/launch_online_dp.py"))
        prefill.wait_ready()
        decode.wait_ready()
        alone = self.engine("alone", into=self.processes)
        port = free_ports(1)
        proxy = harness.Process(
            "proxy", [str(SHIM / "examples/disaggregated_prefill_v1/load_balance_proxy_server_example.py"),
                      "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
                      "--prefiller-hosts", "127.0.0.1", "127.0.0.1",
                      "--prefiller-ports", str(prefill.port), str(prefill.port + 1),
                      "--decoder-hosts", "127.0.0.1", "127.0.0.1",
                      "--decoder-ports", str(decode.port), str(decode.port + 1)], port,
            env={"BATON_BINARY": harness.BATON}, program=sys.executable)
        self.processes.append(proxy)
        proxy.wait_ready("/healthcheck")
        expected = post(alone.port, "/v1/completions", BODY)[1]["choices"]
        for _ in range(4):
            status, answer, _ = post(port, "/v1/completions", BODY)
            self.assertEqual(status, 200, answer)
            self.assertEqual(answer["choices"], expected)
        pulled = [harness.metric(decode.port + rank, "vllm:mooncake_bytes_transferred_sum") for rank in (0, 1)]
        self.assertGreater(sum(pulled), 0)
        for port in (prefill.port + 1, decode.port, decode.port + 1):
            self.assertEqual(post(port, "/v1/completions", BODY)[1]["choices"], expected)
        for launcher in (prefill, decode):
            status, said = launcher.end(signal.SIGINT)
            self.assertEqual(status, 0, said)
            self.assertEqual(members(launcher.folder), [])
            self.assertIn("[dp1] ", said)
            self.assertIn("Application startup complete.", launcher.log(1))
            self.assertIn("finegrained_tp_config", launcher.log(0))

    def test_the_seven_arguments(self):
        launcher = self.launch('echo "args: $@ ($#)"', dp_size=3)
        status, said = launcher.wait_end()
        self.assertEqual(status, 0, said)
        rpc = launcher.popen.args[launcher.popen.args.index("--dp-rpc-port") + 1]
        for rank in range(3):
            line = f"args: {rank} {launcher.port + rank} 3 {rank} 127.0.0.1 {rpc} 1 (7)"
            self.assertIn(f"[dp{rank}] {line}\n", said)
            self.assertIn(line, launcher.log(rank))

    def test_a_rank_that_fails_stops_its_siblings_and_is_the_exit_code(self):
        launcher = self.launch("if [ $4 = 1 ]; then sleep 0.3; echo no luck; exit 41; fi\nsleep 1000\n")
        status, said = launcher.wait_end()
        self.assertEqual(status, 41, said)
        self.assertIn("exit 41, failed first", said)
        self.assertRegex(said, r"the last lines of dp1:\n.*no luck")
        self.assertEqual(members(launcher.folder), [])

    def test_an_engine_that_can_not_start_ends_the_launch(self):
        launcher = self.launch(f"vllm serve {harness.TINY} --port $2 --no-such-flag\n")
        status, said = launcher.wait_end()
        self.assertEqual(status, 2, said)
        self.assertIn("unrecognized arguments: --no-such-flag", said)

    def test_who_ignores_a_stop_is_killed(self):
        launcher = self.launch("trap '' TERM\necho up\nwhile :; do sleep 1; done\n", "--stop-timeout", "1")
        wait_until(lambda: (launcher.folder / "logs").exists() and "up" in launcher.log(0) and "up" in launcher.log(1))
        begin = time.monotonic()
        status, said = launcher.end()
        self.assertEqual(status, 137, said)
        self.assertLess(time.monotonic() - begin, 10)
        self.assertIn("killed by SIGKILL", said)
        self.assertEqual(members(launcher.folder), [])

    def test_what_left_its_group_does_not_outlive_the_launch(self):
        launcher = self.launch("setsid sleep 1000 &\necho up\nsleep 1000\n")
        wait_until(lambda: len(members(launcher.folder)) >= 6)
        status, said = launcher.end()
        self.assertEqual(status, 0, said)
        self.assertIn("had left their rank's process group", said)
        self.assertEqual(members(launcher.folder), [])

    def test_a_killed_launcher_leaves_no_engine(self):
        launcher = self.launch(ENGINE_TEMPLATE.format(model=harness.TINY, role="kv_both", kv_port=free_ports(2)))
        launcher.wait_ready()
        launcher.end(signal.SIGKILL)
        wait_until(lambda: members(launcher.folder) == [], seconds=15, what="every engine has ended")

    def test_nothing_starts_where_something_is_wrong(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            launcher = self.launch("touch started\n", ports=port - 1)
            status, said = launcher.wait_end()
        self.assertEqual(status, 1, said)
        self.assertIn(f"port {port}: Address already in use", said)
        self.assertFalse((launcher.folder / "started").exists())
        launcher = self.launch("touch started\n", "--dp-rank-start", "1")
        status, said = launcher.wait_end()
        self.assertEqual(status, 2, said)
        self.assertIn("end at rank 2, but --dp-size is 2", said)
        os.unlink(launcher.folder / "run_dp_template.sh")
        ended = self.shim(sys.executable, "launch_online_dp.py", "--dp-size", "1", "--dp-address", "127.0.0.1",
                          cwd=launcher.folder)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("template ./run_dp_template.sh: No such file", ended.stderr)

    def test_the_command_vllm_is_baton(self):
        self.assertRegex(self.shim("vllm", "--version").stdout, r"^\d+\.\d+")
        ended = self.shim("vllm", "collect-env")
        self.assertEqual((ended.returncode, ended.stderr),
                         (2, "vllm collect-env: this command of vLLM is not in this version of Baton\n"))
        ended = self.shim("vllm", "serve", harness.TINY, "--pipeline-parallel-size", "4", "--nnodes", "3")
        self.assertEqual(ended.returncode, 2)
        self.assertIn("world_size=4 must be divisible by nnodes=3.", ended.stderr)

    def test_every_starter_has_its_flags(self):
        for script, flag in (("launch_online_dp.py", "--vllm-start-port"),
                             ("load_balance_proxy_server_example.py", "--prefiller-hosts")):
            ended = self.shim(sys.executable, str(SHIM / script), "--help")
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertIn(flag, ended.stdout)


if __name__ == "__main__":
    unittest.main()
