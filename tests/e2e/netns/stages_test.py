"""One engine of four stages over four hosts: it answers what one process answers; a cut cable or a dead host ends it
within seconds, each host saying why, and it can be started again."""
import pathlib
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "seeds")]
import checkpoints  # noqa: E402
import harness  # noqa: E402
from netns_test import PORT, REASON, HostProcess, Lab  # noqa: E402
from selection_test import why_no_ranks  # noqa: E402

STAGES = ("stage0", "stage1", "stage2", "stage3")
MASTER_PORT = 29500
END_SECONDS = 60  # for every host to have ended after one was lost
LONG = "Either the well was very deep, or she fell very slowly, for she had plenty of time. " * 20
BODIES = [{"prompt": LONG, "max_tokens": 8, "temperature": 0, "logprobs": 2},
          {"prompt": LONG[100:], "max_tokens": 12, "temperature": 1, "seed": 11, "top_p": 0.9},
          {"prompt": "x", "max_tokens": 3, "temperature": 0}]


@unittest.skipIf(REASON, REASON)
class Stages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if reason := why_no_ranks():
            raise unittest.SkipTest(reason)
        cls.model = str(checkpoints.make("kimi_k26_w4a8", checkpoints.default_root()))

    def setUp(self):
        self.lab = Lab(*STAGES, "alone")
        self.processes = {}
        try:
            self.start("alone")
            self.start_stages()
            self.lab.wait_ready(self.processes["alone"])
        except BaseException:
            self.tearDown()
            raise

    def tearDown(self):
        failed = self._outcome is None or not self._outcome.success
        processes = list(self.processes.values())
        for process in processes if failed else []:
            print(f"--- {process.name}\n{process.tail(15)}")
        try:
            for name in STAGES:  # a host whose engine has ended has said so with its own status
                process = self.processes.pop(name, None)
                if process:
                    process.killed = True
                    process.close()
            harness.end_all(list(self.processes.values()))
        finally:
            self.lab.network.close()

    def start(self, name, *flags):
        host = self.lab.network[name]
        arguments = ["serve", self.model, "--host", "0.0.0.0", "--port", str(PORT), "--served-model-name", "tiny",
                     "--quantization", "ascend", "--kv-cache-memory-bytes", "64M", "--max-model-len", "4096",
                     "--max-num-seqs", "8", *flags]
        self.processes[name] = HostProcess(host, name, arguments, env={"VLLM_HOST_IP": host.address})

    def start_stages(self):
        for rank, name in enumerate(STAGES):
            self.start(name, "--pipeline-parallel-size", "4", "--nnodes", "4", "--node-rank", str(rank),
                       "--master-addr", self.lab.network["stage0"].address, "--master-port", str(MASTER_PORT),
                       *(["--headless"] if rank else []))
        self.lab.wait_ready(self.processes["stage0"])

    def answer(self, name, body):
        body = {"model": "tiny", "return_token_ids": True, "ignore_eos": True, **body}
        status, answer, _ = self.lab.ask(self.lab.network[name], "/v1/completions", body)
        self.assertEqual(status, 200, answer)
        choice = answer["choices"][0]
        return choice["token_ids"], choice["logprobs"]

    def check_equal(self):
        for body in BODIES:
            self.assertEqual(self.answer("stage0", body), self.answer("alone", body), body)

    def check_all_end(self, lost):
        """Every host but the lost one has ended, by itself, and says something of the loss."""
        deadline = time.monotonic() + END_SECONDS
        for name in STAGES:
            process = self.processes[name]
            if name != lost:
                process.popen.wait(max(0.1, deadline - time.monotonic()))
                self.assertNotEqual(process.popen.returncode, 0, name)
                self.assertRegex(process.tail(15), r"(?i)lost|gone|deadline|does not answer|unreachable|closed|left|silent")

    def start_again(self):
        for name in STAGES:
            process = self.processes.pop(name)
            process.killed = True
            process.close()
        self.start_stages()
        self.check_equal()

    def test_four_hosts_answer_as_one_and_a_dead_one_ends_them_all(self):
        self.check_equal()
        self.processes["stage2"].kill()
        self.check_all_end("stage2")
        self.start_again()

    def test_a_cut_cable_ends_them_all(self):
        self.check_equal()
        self.lab.network["stage1"].cut()
        try:
            self.lab.ask(self.lab.network["stage0"], "/v1/completions", {"model": "tiny", **BODIES[0]}, timeout=END_SECONDS)
        except OSError:
            pass  # the connection may end with the engine
        self.check_all_end(None)
        self.lab.network["stage1"].restore()
        self.start_again()


if __name__ == "__main__":
    unittest.main()
