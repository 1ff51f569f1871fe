"""make-checkpoint, quantize and serve, as a user runs them: a killed run is taken up, a quantised folder answers."""
import hashlib
import json
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import harness
from harness import BATON


def run(*arguments, status=0):
    done = subprocess.run([BATON, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == status, f"{arguments} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    assert not harness.SANITIZER_REPORT.search(done.stderr), done.stderr
    return done.stdout + done.stderr


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(pathlib.Path(folder).iterdir())}


class CheckpointTools(harness.ServingTest):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="baton-tools-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name):
        return str(self.folder / name)

    def killed_midway(self, words):
        """Kills a run once it has written three files. False if it was faster, or ended."""
        shutil.rmtree(self.folder / "cut", ignore_errors=True)
        process = subprocess.Popen([BATON, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while len(list(self.folder.glob("cut/*.safetensors"))) < 3 and process.poll() is None:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        return process.wait(60) == -signal.SIGKILL

    def test_a_killed_run_goes_on_and_gives_the_same_bytes(self):
        run("make-checkpoint", "--arch", "kimi_k31", "--out", self.path("in"), "--layers", "4", "--hidden", "512",
            "--intermediate", "2048", "--experts", "24", "--moe-intermediate", "256", "--shard-mb", "20")
        words = ["quantize", self.path("in"), self.path("cut"), "--scheme", "w4a8-mxfp", "--shard-mb", "1", "--threads",
                 "1"]
        self.assertTrue(any(self.killed_midway(words) for _ in range(10)), "no run could be killed before its end")
        self.assertFalse((self.folder / "cut/config.json").exists())
        resumed = run(*words)
        self.assertGreaterEqual(int(re.search(r"(\d+) of \d+ files stood already", resumed)[1]), 3)
        run("quantize", self.path("in"), self.path("whole"), "--scheme", "w4a8-mxfp", "--shard-mb", "1")
        self.assertEqual(digests(self.folder / "cut"), digests(self.folder / "whole"))

    def test_what_was_quantised_is_served(self):
        run("make-checkpoint", "--arch", "llama", "--out", self.path("in"))
        for scheme, flags in (("fp8-block", []), ("w4a8-dynamic", ["--quantization", "ascend"])):
            run("quantize", self.path("in"), self.path(scheme), "--scheme", scheme)
            engine = self.engine(scheme, *flags, model=self.path(scheme), into=self.processes)
            status, answer, _ = harness.post(engine.port, "/v1/completions",
                                             {"model": "tiny", "prompt": "Either the well", "max_tokens": 8,
                                              "temperature": 0})
            self.assertEqual(status, 200, answer)
            self.assertEqual(answer["usage"]["completion_tokens"], 8)

    def test_mistakes_are_told_with_what_to_do(self):
        self.assertIn("is not one of llama, deepseek_v3",
                      run("make-checkpoint", "--arch", "gpt2", "--out", self.path("x"), status=1))
        self.assertIn("kimi_k3 has no --index-heads", run("make-checkpoint", "--arch", "kimi_k3", "--out",
                                                          self.path("x"), "--index-heads", "4", status=1))
        run("make-checkpoint", "--arch", "llama", "--out", self.path("in"))
        self.assertIn("give a new folder", run("make-checkpoint", "--arch", "llama", "--out", self.path("in"), status=1))
        self.assertIn("is not one of fp8-block", run("quantize", self.path("in"), self.path("o"), "--scheme", "q4",
                                                     status=1))
        self.assertIn("--scheme is required", run("quantize", self.path("in"), self.path("o"), status=2))
        self.assertIn("for --scheme w8a8 alone", run("quantize", self.path("in"), self.path("o"), "--scheme", "mxfp4",
                                                     "--input-scale-from", self.path("in") + "/config.json", status=1))
        for words in (["make-checkpoint", "--arch", "llama", "--out", self.path("o")],
                      ["quantize", self.path("in"), self.path("o"), "--scheme", "mxfp4"]):
            self.assertIn("Value 1000000 not in range 0 to 1024", run(*words, "--threads", "1000000", status=2))
            self.assertIn("--shard-mb is 9000000000000000000",
                          run(*words, "--shard-mb", "9000000000000000000", status=1))
        self.assertIn("quantization \"fp8\" was asked for", run("serve", self.path("in"), "--quantization", "fp8",
                                                               status=1))
        self.assertIn("quant_model_description.json is missing",
                      run("serve", self.path("in"), "--quantization", "ascend", status=1))

    def edit(self, name, **changes):
        """config.json of the folder `name` with text settings changed; the folder's path."""
        path = self.folder / name / "config.json"
        original = path.read_text()
        config = json.loads(original)
        config["text_config"] |= changes
        path.write_text(json.dumps(config))
        refusal = run("serve", self.path(name), status=1)
        path.write_text(original)
        return refusal

    def test_a_configuration_that_would_change_answers_silently_is_refused(self):
        run("make-checkpoint", "--arch", "kimi_k31", "--out", self.path("k"))
        linear = json.loads((self.folder / "k/config.json").read_text())["text_config"]["linear_attn_config"]
        self.assertIn("index_topk_pattern is not a key of the indexer", self.edit("k", index_topk_pattern="FS"))
        self.assertIn("indexer_types must be a list", self.edit("k", indexer_types="shared"))
        self.assertIn('indexer_types holds "half" for layer 3', self.edit("k", indexer_types=["half"] * 6))
        self.assertIn("kda_layers must be a list", self.edit("k", linear_attn_config=linear | {"kda_layers": "1-3"}))
        self.assertIn("routed_scaling_factor must be a number above 0 that fits fp32",
                      self.edit("k", routed_scaling_factor=1e39))
        self.assertIn("gate_lower_bound must be a number below 0 that fits fp32",
                      self.edit("k", linear_attn_config=linear | {"gate_lower_bound": -1e39}))
        generation = self.folder / "k/generation_config.json"
        for text, told in (('{"temperature": "hot"}', "temperature must be a number from 0"),
                           ('{"eos_token_id": "</s>"}', "generation_config.json: eos_token_id holds")):
            generation.write_text(text)
            self.assertIn(told, run("serve", self.path("k"), status=1))
        generation.unlink()
        (self.folder / "k/chat_template.jinja").mkdir()
        self.assertIn("chat_template.jinja is not a regular file", run("serve", self.path("k"), status=1))
        (self.folder / "k/chat_template.jinja").rmdir()
        self.assertIn("is a folder, not a file", run("serve", self.path("k"), "--chat-template", "/tmp", status=1))
        for value, told in (("4294967296", "kv_port: 4294967296 is not a port"), ("-1", "kv_port: -1 is not a port")):
            self.assertIn(told, run("serve", self.path("k"), "--kv-transfer-config",
                                    '{"kv_connector": "MooncakeConnectorV1", "kv_role": "kv_producer", "kv_port": %s}'
                                    % value, status=2))
        self.assertIn("unknown key 'backend'; known: indexer_kv_dtype",
                      run("serve", self.path("k"), "--attention-config", '{"backend": "x"}', status=2))


if __name__ == "__main__":
    unittest.main()
