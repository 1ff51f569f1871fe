"""What is read out of documents, how it is filled in for one host, what is changed and what is told. Starts nothing."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import checkpoints  # noqa: E402
import compare  # noqa: E402
import documents  # noqa: E402
import fill  # noqa: E402
import lowering  # noqa: E402
import ranks  # noqa: E402
import run  # noqa: E402
import shell_text  # noqa: E402
import vllm_edit  # noqa: E402


def deployment(name):
    return next(d for _, found in documents.read(HERE / "testdata") for d in found if d.name == name)


PULL, CONTEXT, SINGLE = ("little-deepseek-r1_w8a8_mtp-pull", "little-kimi-k3.1-pro-w4a8-pull",
                         "little-kimi-k2.6-w4a8-single")


def filled(name, flatten=False, placing=None):
    return fill.Filler(deployment(name), placing or fill.OneHost(fill.Ports()), "/work", flatten=flatten).fill()


class ShellText(unittest.TestCase):
    def test_a_command_goes_on_over_backslashes_and_quotes(self):
        lines = ["vllm serve m \\", "--a '{", '"k": 1', "}' \\", "--b 2", "prose"]
        self.assertEqual(shell_text.command_end(lines, 0), 5)
        self.assertEqual(shell_text.options_of(shell_text.words_of("\n".join(lines[:5]))),
                         {"": ["vllm", "serve", "m"], "--a": ['{\n"k": 1\n}'], "--b": ["2"]})

    def test_a_backslash_before_an_empty_line_ends_the_command(self):
        lines = ["python p.py --ports \\", "    1 2\\", "    3 4\\", "", "prose"]
        end = shell_text.command_end(lines, 0)
        self.assertLessEqual(end, 4)
        self.assertEqual(shell_text.options_of(shell_text.words_of("\n".join(lines[:end])))["--ports"],
                         ["1", "2", "3", "4"])

    def test_an_apostrophe_in_a_comment_opens_nothing(self):
        self.assertEqual(shell_text.command_end(["export A=1  # it's a comment", "next"], 0), 1)

    def test_a_command_that_never_ends_ends_with_the_document(self):
        self.assertEqual(shell_text.command_end(["vllm serve 'm", "prose", "prose"], 0), 3)


class Documents(unittest.TestCase):
    def test_every_deployment_is_found_with_its_lines(self):
        found = {d.name: d for _, all_of in documents.read(HERE / "testdata") for d in all_of}
        self.assertEqual(set(found), {PULL, CONTEXT, SINGLE})
        for name, one in found.items():
            self.assertEqual(one.missing, [], name)
        self.assertEqual([s.role for s in found[PULL].scripts], ["prefill", "prefill", "decode", "decode"])
        self.assertEqual([launch.number("--dp-rank-start") for launch in found[PULL].launches], [0, 0, 0, 2])
        self.assertEqual([s.role for s in found[CONTEXT].scripts], ["prefill", "decode"])
        self.assertEqual(found[SINGLE].proxy, None)

    def test_prose_about_the_command_is_not_a_command(self):
        text = "Update the vllm serve path in every template.\nvllm serve command above\n"
        self.assertEqual(documents.parse("x.txt", text), [])

    def test_a_script_is_whole_and_begins_behind_the_prose(self):
        first = deployment(PULL).scripts[0]
        self.assertTrue(first.text.startswith("# what ip addr calls the card\n"))
        self.assertTrue(first.text.endswith("}'\n"))
        self.assertIn("export OMP_NUM_THREADS=10", first.text)
        script = deployment(CONTEXT).scripts[0]
        self.assertTrue(script.text.startswith("#!/usr/bin/env bash\nset -euo pipefail\n"))
        self.assertNotIn("```", script.text)

    def test_every_script_is_valid_shell(self):
        for name in (PULL, CONTEXT, SINGLE):
            for node in filled(name).nodes:
                done = subprocess.run(["bash", "-n"], input=node.text, text=True, capture_output=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""), node.text)

    def test_sizes_that_the_launcher_gives_come_from_the_connector(self):
        decode = deployment(CONTEXT).scripts[1]
        self.assertEqual([decode.size(s) for s in ("dp", "tp", "dcp", "pp")], [2, 2, 2, 1])
        self.assertTrue(decode.by_launcher)
        self.assertFalse(deployment(CONTEXT).scripts[0].by_launcher)

    def test_a_pooled_deployment_is_told_from_a_pulled_one(self):
        text = deployment(CONTEXT).scripts[1].text
        config = {"kv_connector": "MultiConnector", "kv_role": "kv_consumer", "kv_connector_extra_config": {
            "connectors": [{"kv_connector": "MooncakeConnectorV2", "kv_connector_extra_config": {
                "decode": {"dp_size": 4, "tp_size": 16}}}]}}
        begin = text.index("--kv-transfer-config")
        found = documents.parse("x.txt", text[:begin] + f"--kv-transfer-config '{json.dumps(config)}'\n")[0]
        self.assertTrue(found.pooled)
        self.assertEqual((found.scripts[0].size("dp"), found.scripts[0].size("tp")), (4, 16))
        self.assertIn("no proxy line", found.missing)


class Filling(unittest.TestCase):
    def test_no_placeholder_and_no_address_of_the_document_is_left(self):
        for name in (PULL, CONTEXT, SINGLE):
            plan = filled(name)
            for node in plan.nodes:
                self.assertIsNone(fill.PLACEHOLDER.search(node.text), node.text)
                for line in node.text.splitlines():
                    if not line.startswith("#"):
                        self.assertNotRegex(line, r"10\.1\.|xxx|sysctl|scaling_governor|LD_PRELOAD=")
                self.assertNotIn("10.1.", " ".join(node.command or []))
            self.assertNotIn("10.1.", " ".join(plan.proxy or []))

    def test_nodes_have_ports_of_their_own_and_the_proxy_knows_them(self):
        plan = filled(PULL)
        endpoints = [port for node in plan.nodes for port in node.endpoints]
        self.assertEqual(len(set(endpoints)), 8)
        options = shell_text.options_of(plan.proxy)
        self.assertEqual(options["--prefiller-ports"] + options["--decoder-ports"],
                         [str(port) for _, port in endpoints])
        self.assertEqual(options["--decoder-hosts"], ["127.0.0.1"] * 4)
        kv = sorted(node.kv_port for node in plan.nodes)
        self.assertTrue(all(b - a >= fill.KV_PORTS for a, b in zip(kv, kv[1:])))

    def test_one_data_parallel_group_meets_at_one_place_and_two_at_two(self):
        meeting = [shell_text.options_of(node.command)["--dp-rpc-port"][0] for node in filled(PULL).nodes]
        self.assertEqual(len(set(meeting[:2])), 2)
        self.assertEqual(meeting[2], meeting[3])

    def test_a_line_for_every_node_is_run_on_every_node(self):
        plan = filled(CONTEXT)
        self.assertEqual([node.name for node in plan.nodes], ["prefill-0", "prefill-1", "decode-0", "decode-1"])
        self.assertEqual([node.rank for node in plan.of("prefill")], [0, 1])
        self.assertEqual([len(node.endpoints) for node in plan.nodes], [1, 0, 1, 1])
        self.assertEqual([shell_text.options_of(node.command)["--dp-rank-start"] for node in plan.of("decode")],
                         [["0"], ["1"]])
        self.assertIn('NODE_RANK="1"', plan.nodes[1].text)
        self.assertIn('ENGINE_ID="prefill"', plan.nodes[1].text)
        self.assertIn('ENGINE_ID="decode-1"', plan.nodes[3].text)
        self.assertEqual(plan.proxy[1], "/work/source/examples/disaggregated_prefill_v1/"
                                        "load_balance_proxy_server_example.py")

    def test_flattened_each_launcher_line_is_one_engine(self):
        plan = filled(PULL, flatten=True)
        self.assertEqual([node.engines for node in plan.nodes], [1, 1, 1, 1])
        self.assertEqual(shell_text.options_of(plan.proxy)["--decoder-ports"],
                         [str(node.api_port) for node in plan.of("decode")])
        self.assertEqual(len(filled(CONTEXT, flatten=True).of("prefill")), 1)

    def test_what_tunes_the_host_is_left_out_and_told(self):
        notes = "\n".join(filled(PULL).nodes[0].notes)
        for word in ("LD_PRELOAD", "sysctl -w vm.swappiness=0", "scaling_governor"):
            self.assertIn(word, notes)

    def test_an_unknown_placeholder_is_named(self):
        with self.assertRaisesRegex(ValueError, "<PREFILL_MOON_PHASE> is not known"):
            fill.replace_placeholders("A=<PREFILL_MOON_PHASE>", {})

    def test_a_proxy_line_that_names_nobody_is_refused(self):
        plan = deployment(PULL)
        plan.proxy.options["--decoder-hosts"][0] = "10.1.xx.9"
        with self.assertRaisesRegex(ValueError, "10.1.xx.9, which no script has"):
            fill.Filler(plan, fill.OneHost(fill.Ports()), "/work").fill()

    def test_on_hosts_of_their_own_ports_are_the_documents(self):
        plan = filled(PULL, placing=fill.OwnHosts())
        self.assertEqual([node.host for node in plan.nodes], [f"192.0.0.{i}" for i in (1, 2, 3, 4)])
        self.assertEqual([node.endpoints[-1][1] for node in plan.nodes], [7101] * 4)
        self.assertEqual([node.kv_port for node in plan.nodes], [36000, 36100, 36200, 36200])
        was, now = deployment(PULL), shell_text.options_of(plan.proxy)
        for name in ("--port", "--prefiller-ports", "--decoder-ports"):
            self.assertEqual(now[name], was.proxy.options[name])
        self.assertEqual(now["--decoder-hosts"], ["192.0.0.3"] * 2 + ["192.0.0.4"] * 2)
        for node, launch in zip(plan.nodes, was.launches):
            changed = [(a, b) for a, b in zip(fill.words_of(launch.text), node.command) if a != b]
            self.assertEqual(len(changed), 1)  # the address, whose middle the document leaves open
        self.assertEqual(filled(CONTEXT, placing=fill.OwnHosts()).entrance, ("192.0.0.1", 1999))


class Lowering(unittest.TestCase):
    def edits(self, name, flatten=False, at=0):
        node = filled(name, flatten).nodes[at]
        return node, lowering.edits(node, "/small", lowering.checkpoint_of(node.script.model), flatten, True)

    def test_the_command_is_the_documents_but_for_what_is_told(self):
        node, edits = self.edits(PULL)
        before = shell_text.words_of(node.script.text[node.script.text.index("vllm serve"):])[1:]
        after, notes = vllm_edit.edited(before, edits)
        was, now = shell_text.options_of(before), shell_text.options_of(after)
        self.assertEqual(now[""], ["serve", "/small"])
        self.assertEqual(set(was) - set(now), {"--speculative-config"})
        self.assertEqual(set(now) - set(was), {"--kv-cache-memory-bytes"})
        changed = {name for name in set(was) & set(now) if was[name] != now[name] and name}
        self.assertEqual(changed, set())
        self.assertIn(f'"kv_port": "{node.kv_port}"', node.text)
        self.assertEqual(len(notes), 1)

    def test_json_is_changed_member_by_member(self):
        edits = {"json": {"--c": {"a": {"x": 2}, "b": "3"}}}
        words, _ = vllm_edit.edited(["serve", "m", "--c", '{"a": {"x": 1, "y": 1}, "b": "1", "d": 4}'], edits)
        self.assertEqual(json.loads(words[3]), {"a": {"x": 2, "y": 1}, "b": "3", "d": 4})

    def test_flattened_no_parallel_option_is_left(self):
        node, edits = self.edits(CONTEXT, flatten=True)
        words = ["serve", "m", "--pipeline-parallel-size", "2", "--headless", "--seed", "1", "--nnodes=2"]
        self.assertEqual(vllm_edit.edited(words, edits)[0][:4], ["serve", "/small", "--seed", "1"])
        self.assertEqual(edits["unset_env"], ["VLLM_PP_LAYER_PARTITION"])

    def test_tokens_of_a_step_are_lowered_for_several_ranks_alone(self):
        _, edits = self.edits(CONTEXT)
        self.assertEqual(edits["set"], {"--max-num-batched-tokens": "2048"})
        _, edits = self.edits(CONTEXT, flatten=True)
        self.assertEqual(edits["set"], {})
        _, edits = self.edits(SINGLE)
        self.assertEqual(list(edits["set"]), ["--port"])

    def test_the_small_checkpoint_is_that_of_the_model(self):
        for model, name in (("/path_to_weight/DeepSeek-r1_w8a8_mtp", "deepseek_r1_w8a8"),
                            ("Eco-Tech/Kimi-K2.6-W4A8", "kimi_k26_w4a8"),
                            ("/root/.cache/Kimi-K3.1-Pro-w4a8-mxfp", "kimi_k31_w4a8_mxfp"),
                            ("/root/.cache/Kimi-K3.1-Pro-w4a8", "kimi_k31_w4a8")):
            self.assertEqual(lowering.checkpoint_of(model), name)
            self.assertIn(name, checkpoints.names())
        with self.assertRaisesRegex(ValueError, "no small checkpoint stands for gpt2"):
            lowering.checkpoint_of("gpt2")

    def test_the_wrapper_becomes_the_real_program(self):
        with tempfile.TemporaryDirectory() as folder:
            real = pathlib.Path(folder) / "real"
            real.write_text("#!/bin/sh\necho \"real: $* [$GONE]\"\n")
            real.chmod(0o755)
            edits = {"model": "/small", "drop": {"--x": "because"}, "add": {"--y": "2"}, "unset_env": ["GONE"]}
            done = subprocess.run([sys.executable, HERE / "vllm_edit.py", "serve", "m", "--x", "1", "2", "--z"],
                                  env={**os.environ, "BATON_SEEDS_EDITS": json.dumps(edits), "GONE": "here",
                                       "BATON_SEEDS_VLLM": str(real)}, capture_output=True, text=True)
        self.assertEqual(done.stdout, "real: serve /small --z --y 2 []\n")
        self.assertIn("seeds: left out --x 1 2: because", done.stderr)


class Comparing(unittest.TestCase):
    RIGHT = {"ids": [1, 2], "logprobs": {"token_logprobs": [-0.5, -1.25]}, "end": "length", "usage": [3, 2]}

    def test_the_least_difference_is_found(self):
        wrong = {**self.RIGHT, "logprobs": {"token_logprobs": [-0.5, -1.2500001]}}
        self.assertEqual(compare.differences({"a": self.RIGHT}, {"a": dict(self.RIGHT)}), [])
        for got in (wrong, {**self.RIGHT, "ids": [1, 3]}, {**self.RIGHT, "usage": [3, 3]}, "status 500: x"):
            self.assertEqual(len(compare.differences({"a": self.RIGHT}, {"a": got})), 1, got)
        self.assertEqual(len(compare.differences({"a": self.RIGHT}, {})), 1)
        self.assertEqual(len(compare.differences({"a": "the reference failed"}, {"a": self.RIGHT})), 1)

    def test_the_long_prompt_is_longer_than_sixteen_lanes(self):
        body = compare.requests_for("m", 4, True)[-1][2]
        self.assertGreater(len(body["prompt"]), 16 * 768)

    def test_prompts_differ(self):
        prompts = [body["prompt"] for name, _, body in compare.requests_for("m", 32, False) if "greedy" in name
                   and "prompt" in body]
        self.assertEqual(len(set(prompts)), 32)


class Ranks(unittest.TestCase):
    """Prefill has two stages of two ranks, a decode engine two ranks."""

    def verdict(self, *grown):
        """`grown`: of the ranks of prefill and the first decode engine."""
        plan, tokens = filled(CONTEXT), {}

        def read(endpoint):
            return "".join(f'baton:rank_kv_tokens_total{{engine="0",rank="r{i}"}} {value}\n'
                           for i, value in enumerate(tokens.get(endpoint, [])))

        prefill, decode = plan.nodes[0].endpoints[0], plan.nodes[2].endpoints[0]
        tokens.update({prefill: [5.0] * 4, decode: [7.0] * 2})
        with ranks.Watch(plan, read) as watch:
            tokens[prefill] = [5.0 + x for x in grown[:4]]
            tokens[decode] = [7.0 + x for x in grown[4:]]
        return watch.verdict()

    def test_a_rank_without_kv_is_found(self):
        self.assertEqual(self.verdict(1, 1, 2, 2, 3, 3)[0], True)
        ok, told = self.verdict(1, 1, 2, 0, 3, 3)
        self.assertFalse(ok)
        self.assertIn("prefill: 3 of 4 ranks took KV", told)

    def test_ranks_that_the_metrics_do_not_name_are_missed(self):
        ok, told = self.verdict(1, 1, 2, 2, 3)
        self.assertFalse(ok)
        self.assertIn("decode: 1 of 2 ranks", told)


class CommandLine(unittest.TestCase):
    def test_wrong_words_are_told(self):
        self.assertEqual(run.main(["--docs", "/no/such/folder"]), 2)
        self.assertEqual(run.main(["--docs", str(HERE / "testdata"), "--only", "nothing"]), 2)

    def test_only_chooses_by_part_or_whole_name(self):
        one = deployment(PULL)
        self.assertTrue(run.wanted(one, ["deepseek"]))
        self.assertTrue(run.wanted(one, [f"={PULL}"]))
        self.assertFalse(run.wanted(one, ["=deepseek"]))


if __name__ == "__main__":
    unittest.main()
