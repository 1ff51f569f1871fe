"""`baton bench` as a user runs it: its report and result file against what the server itself counted."""
import json
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

import harness
from harness import BATON, TINY, metric, wait_until

# Of vLLM's result file, without --save-detailed.
RESULT_KEYS = {
    "date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts", "request_rate",
    "burstiness", "max_concurrency", "duration", "completed", "failed", "total_input_tokens", "total_output_tokens",
    "request_throughput", "request_goodput", "output_throughput", "total_token_throughput", "max_output_tokens_per_s",
    "max_concurrent_requests", "rtfx", "latencies", "queue_times"}
DETAILED_KEYS = {"input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors"}
CONSOLE = [
    "Successful requests:", "Failed requests:", "Maximum request concurrency:", "Benchmark duration (s):",
    "Total input tokens:", "Total generated tokens:", "Request throughput (req/s):", "Request goodput (req/s):",
    "Output token throughput (tok/s):", "Peak output token throughput (tok/s):", "Peak concurrent requests:",
    "Total token throughput (tok/s):"]


def bench(*arguments, status=0, timeout=120):
    done = subprocess.run([BATON, "bench", *map(str, arguments)], capture_output=True, text=True, timeout=timeout)
    assert not harness.SANITIZER_REPORT.search(done.stderr), done.stderr
    assert done.returncode == status, f"{arguments} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def tokens(port):
    return metric(port, "vllm:prompt_tokens_total"), metric(port, "vllm:generation_tokens_total")


class Folder(harness.ServingTest):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="baton-bench-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def result(self, name="result.json"):
        return json.loads((self.folder / name).read_text())


class BenchServe(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = cls.engine("engine", "--max-model-len", "1024", into=cls.class_processes)
        cls.port = cls.server.port

    def serve(self, *arguments, status=0):
        return bench("serve", "--port", self.port, "--skip-limits", "--save-result", "--result-dir", self.folder,
                     "--result-filename", "result.json", *arguments, status=status)

    def test_counts_are_the_servers(self):
        before = tokens(self.port)
        text = self.serve("--random-input", 48, "--random-output-len", 12, "--num_prompts", 10, "--max-concurrency", 3,
                          "--goodput", "ttft:60000", "tpot:60000", "--save-detailed", "--percentile-metrics",
                          "ttft,tpot,itl,e2el", "--metric-percentiles", "50,99", "--metadata", "host=here")
        after, result = tokens(self.port), self.result()
        self.assertEqual((result["completed"], result["failed"], result["num_prompts"]), (10, 0, 10))
        self.assertEqual(result["total_input_tokens"], after[0] - before[0])
        self.assertEqual(result["total_output_tokens"], after[1] - before[1])
        self.assertEqual(result["total_output_tokens"], 120)
        self.assertAlmostEqual(result["total_input_tokens"], 480, delta=10)  # a prompt may not settle at its length
        figures = {f"{kind}_{name}_ms" for kind in ("mean", "median", "std", "p50", "p99")
                   for name in ("ttft", "tpot", "itl", "e2el")}
        self.assertLessEqual(RESULT_KEYS | DETAILED_KEYS | figures | {"host", "client_cpu_seconds"}, set(result))
        self.assertEqual((result["host"], result["max_concurrency"], result["request_rate"]), ("here", 3, "inf"))
        self.assertEqual(result["max_concurrent_requests"], 3)
        at = -1
        for words in CONSOLE:
            found = text.find(words, at + 1)
            self.assertGreater(found, at, f"{words} is missing or out of order in\n{text}")
            at = found

    def test_figures_follow_from_the_details(self):
        self.serve("--random-input-len", 32, "--random-output-len", 8, "--num-prompts", 6, "--save-detailed",
                   "--request-rate", 50, "--goodput", "ttft:60000", "--percentile-metrics", "ttft,tpot,e2el")
        result = self.result()
        for i, latency in enumerate(result["latencies"]):
            self.assertAlmostEqual(result["ttfts"][i] + sum(result["itls"][i]), latency, places=6)
        self.assertAlmostEqual(result["mean_ttft_ms"], sum(result["ttfts"]) / 6 * 1e3, places=6)
        tpots = [(latency - ttft) / 7 for latency, ttft in zip(result["latencies"], result["ttfts"])]
        self.assertAlmostEqual(result["mean_tpot_ms"], sum(tpots) / 6 * 1e3, places=6)
        self.assertAlmostEqual(result["request_throughput"], 6 / result["duration"], places=6)
        self.assertAlmostEqual(result["request_goodput"], 6 / result["duration"], places=6)
        self.assertAlmostEqual(result["start_times"][-1] - 6 / 50, 0, delta=0.2)  # vLLM scales the last gap to here
        self.assertEqual([len(gaps) for gaps in result["itls"]], [7] * 6)

    def test_times_are_not_below_the_servers(self):
        def sums():
            return [metric(self.port, f"vllm:{name}_seconds_sum") for name in ("time_to_first_token", "e2e_request_latency")]
        before = sums()
        self.serve("--random-input-len", 64, "--random-output-len", 16, "--num-prompts", 8, "--max-concurrency", 2,
                   "--percentile-metrics", "ttft,e2el")
        after, result = sums(), self.result()
        for server, key in zip((b - a for a, b in zip(before, after)), ("mean_ttft_ms", "mean_e2el_ms")):
            mean = result[key] / 1e3
            self.assertGreaterEqual(mean, server / 8 - 0.002, key)
            self.assertLess(mean, server / 8 + 0.1, key)

    def test_chat_and_shared_prefixes_hit_the_cache(self):
        hits = metric(self.port, "vllm:prefix_cache_hits_total")
        self.serve("--dataset-name", "prefix_repetition", "--prefix-repetition-prefix-len", 64,
                   "--prefix-repetition-suffix-len", 16, "--prefix-repetition-num-prefixes", 2, "--num-prompts", 8,
                   "--prefix-repetition-output-len", 4, "--backend", "openai-chat", "--ignore-eos", "--max-concurrency", 1)
        self.assertEqual(self.result()["completed"], 8)
        self.assertGreaterEqual(metric(self.port, "vllm:prefix_cache_hits_total") - hits, 6 * 48)

    def test_files_and_a_trace(self):
        lines = self.folder / "prompts.jsonl"
        lines.write_text("".join(json.dumps({"prompt": f"Tell me of {i} cats", "output_tokens": i}) + "\n"
                                 for i in (2, 3, 4)))
        self.serve("--dataset-name", "custom", "--dataset-path", lines, "--custom-output-len", -1, "--num-prompts", 3,
                   "--ignore-eos")
        self.assertEqual(self.result()["total_output_tokens"], 9)
        talks = self.folder / "talks.json"
        talks.write_text(json.dumps([{"conversations": [{"from": "human", "value": "How are you today, my friend?"},
                                                        {"from": "gpt", "value": "I am very well, thank you."}]}]))
        self.serve("--dataset-name", "sharegpt", "--dataset-path", talks, "--num-prompts", 1, "--output-len", 5,
                   "--ignore-eos")
        self.assertEqual(self.result()["total_output_tokens"], 5)
        trace = self.folder / "trace.jsonl"
        trace.write_text("".join(json.dumps({"timestamp": at, "input_length": 40, "output_length": 3, "hash_ids": [1, 2]})
                                 + "\n" for at in (1000, 1200, 1600)))
        self.serve("--dataset-name", "timed_trace", "--dataset-path", trace, "--timed-trace-sec-multiplier", 0.001,
                   "--save-detailed", "--ignore-eos", "--num-prompts", 3)
        result = self.result()
        self.assertEqual(result["total_output_tokens"], 9)
        for start, expected in zip(result["start_times"], (0, 0.2, 0.6)):
            self.assertAlmostEqual(start, expected, delta=0.1)

    def test_a_refused_load_fails_and_says_why(self):
        text = self.serve("--random-input-len", 2000, "--random-output-len", 8, "--num-prompts", 2, status=1)
        self.assertIn("HTTP 400", text)
        self.assertEqual((self.result()["completed"], self.result()["failed"]), (0, 2))

    def test_wrong_words_end_with_2(self):
        for words in (["--request-rate", "0"], ["--goodput", "speed:1"], ["--random", "5"], ["--no-such-flag"],
                      ["--dataset-name", "hf"], ["--ramp-up-strategy", "linear"], ["--metadata", "x"],
                      ["--random-range-ratio", "2"], ["--extra-body", "[]"], ["--max-concurrency", "0"]):
            with self.subTest(words):
                self.serve(*words, status=2)

    def test_interrupt_ends_early_with_what_there_is(self):
        process = subprocess.Popen(
            [BATON, "bench", "serve", "--port", str(self.port), "--skip-limits", "--save-result", "--result-dir",
             str(self.folder), "--result-filename", "result.json", "--random-input-len", "16", "--random-output-len",
             "4", "--num-prompts", "200", "--request-rate", "10"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        before = metric(self.port, "vllm:request_success_total")
        wait_until(lambda: metric(self.port, "vllm:request_success_total") >= before + 3, 30, "three requests")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130)
        self.assertGreaterEqual(self.result()["completed"], 3)
        self.assertLess(self.result()["completed"], 200)


class BenchHere(Folder):
    def test_latency_and_throughput(self):
        text = bench("throughput", "--model", TINY, "--skip-limits", "--num-prompts", 6, "--random-input-len", 24,
                     "--random-output-len", 5, "--kv-cache-memory-bytes", "64M", "--threads", 1, "--output-json",
                     self.folder / "result.json")
        self.assertRegex(text, r"Throughput: [\d.]+ requests/s, [\d.]+ total tokens/s, [\d.]+ output tokens/s")
        self.assertIn("Total num prompt tokens:  144\nTotal num output tokens:  30\n", text)
        self.assertEqual(self.result()["total_num_tokens"], 174)
        text = bench("latency", "--model", TINY, "--skip-limits", "--batch-size", 2, "--input-len", 8, "--output-len", 4,
                     "--num-iters", 3, "--num-iters-warmup", 1, "--kv-cache-memory-bytes", "64M", "--threads", 1,
                     "--output-json", self.folder / "result.json")
        self.assertIn("Avg latency: ", text)
        self.assertEqual(len(self.result()["latencies"]), 3)
        self.assertEqual(set(self.result()["percentiles"]), {"10", "25", "50", "75", "90", "99"})

    def test_kernels_handoff_and_limits(self):
        bench("kernels", "--filter", "rms_norm", "--output-json", self.folder / "result.json")
        self.assertEqual(len(self.result()["lines"]), 2)
        self.assertTrue(all(line["seconds"] > 0 for line in self.result()["lines"]))
        text = bench("handoff", "--megabytes", 1, "--rounds", 1, "--output-json", self.folder / "result.json")
        self.assertTrue(text.startswith("Machine: "), text)
        self.assertGreater(self.result()["machine_limits"]["memcpy_gbs"], 0)
        pulls = [line for line in self.result()["lines"] if line["what"].startswith("pull over")]
        self.assertEqual(len(pulls), 4)
        self.assertTrue(all(line["gbs"] > 0 for line in pulls))
        bench("handoff", "--megabytes", 0, status=2)
        bench("kernels", "--outputs", 100, status=2)
        bench("sweep", status=2)


if __name__ == "__main__":
    unittest.main()
