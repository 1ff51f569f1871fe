"""What one small host changes in a document's command line, each with its reason, and nothing else.

The checkpoint stands in for the document's; options of features that aren't there are left out; memory for KV is said in
bytes, since --gpu-memory-utilization gives one process of many nearly the whole host. Everything here is told in the output.
"""
import re

CHECKPOINTS = [  # what a document calls its model, and which small checkpoint stands for it
    (re.compile(r"deepseek.*r1.*w8a8", re.I), "deepseek_r1_w8a8"),
    (re.compile(r"kimi-k2\.6.*w4a8", re.I), "kimi_k26_w4a8"),
    (re.compile(r"kimi-k3\.1.*w4a8-mxfp", re.I), "kimi_k31_w4a8_mxfp"),
    (re.compile(r"kimi-k3\.1.*w4a8", re.I), "kimi_k31_w4a8"),
]
# Bytes of cache per token and engine of these checkpoints in the widest dtype the documents use, rounded up.
CACHE_BYTES_PER_TOKEN = {"deepseek_r1_w8a8": 2048, "kimi_k26_w4a8": 2048, "kimi_k31_w4a8": 8192,
                         "kimi_k31_w4a8_mxfp": 8192}
CACHE_BYTES_LEAST = 128 << 20
ABSENT = {"--speculative-config": "speculative decoding is not there"}
PARALLEL = ["--data-parallel-size", "--data-parallel-size-local", "--data-parallel-rank", "--data-parallel-start-rank",
            "--data-parallel-address", "--data-parallel-rpc-port", "--tensor-parallel-size", "--pipeline-parallel-size",
            "--prefill-context-parallel-size", "--decode-context-parallel-size", "--nnodes", "--node-rank", "--headless",
            "--master-addr", "--master-port"]
# Of an engine with several ranks: each rank has buffers for a step's tokens.
BATCHED_TOKENS_MOST = 2048
WHY_SET = {"--port": "a port of this run's own", "--max-num-batched-tokens": "each rank has buffers for a step's tokens"}
CLAIMED_SIZES = ("tp_size", "dp_size", "pp_size", "pcp_size", "dcp_size")
FLATTENED = "--flatten makes every engine one rank"
# What the one-rank engine is given: all that may change an answer, and nothing of layout or size.
REFERENCE_FLAGS = ["--quantization", "--seed", "--kv-cache-dtype", "--attention_config.indexer_kv_dtype",
                   "--tokenizer-mode", "--served-model-name", "--reasoning-parser", "--tool-call-parser",
                   "--enable-auto-tool-choice"]
REFERENCE_SIZES = {"--max-model-len": "16384", "--max-num-seqs": "16"}


def checkpoint_of(model):
    for pattern, name in CHECKPOINTS:
        if pattern.search(model):
            return name
    raise ValueError(f"no small checkpoint stands for {model}: add one to lowering.py and checkpoints/")


def cache_bytes(checkpoint, script, flatten):
    tokens = script.number("--max-model-len", 65536)
    # Several requests of ordinary length, or one of the longest with room for whole blocks of all context ranks.
    least = max(CACHE_BYTES_LEAST, CACHE_BYTES_PER_TOKEN[checkpoint] * (tokens + 2 * 12288))
    return least if flatten else least * copies_of(script)


def copies_of(script):
    """How often an engine's process keeps a token: every rank of a stage, but for those that split the context; and a
    process with one of several stages has that part of the layers alone. (Memory is reserved, not touched.)"""
    team, context = script.size("tp") * script.size("pcp"), script.size("pcp") * script.size("dcp")
    return max(1, -(-team // (context * script.size("nnodes"))))


def ranks_of(script):
    return script.size("tp") * script.size("pp") * script.size("pcp")


def edits(node, model_folder, checkpoint, flatten, one_host):
    """For vllm_edit.py."""
    script = node.script
    made = {"model": str(model_folder), "drop": dict(ABSENT), "set": {}, "json": {}, "unset_env": [],
            "add": {"--kv-cache-memory-bytes": str(cache_bytes(checkpoint, script, flatten))}}
    if script.connector and not one_host:
        # Hosts of their own share no memory; these ones do, and would find out.
        made["json"]["--kv-transfer-config"] = {"kv_connector_extra_config": {"baton_transport": "tcp"}}
    if script.number("--port") is not None and one_host:
        made["set"]["--port"] = str(node.api_port)
    if flatten:
        made["drop"] |= {name: FLATTENED for name in PARALLEL}
        made["unset_env"] = ["VLLM_PP_LAYER_PARTITION"]
        if script.connector:  # what it says of either side's sizes would contradict them
            config = made["json"].setdefault("--kv-transfer-config", {}).setdefault("kv_connector_extra_config", {})
            config |= {side: dict.fromkeys(CLAIMED_SIZES, 1) for side in ("prefill", "decode")}
    elif ranks_of(script) > 1 and script.number("--max-num-batched-tokens", 0) > BATCHED_TOKENS_MOST:
        made["set"]["--max-num-batched-tokens"] = str(BATCHED_TOKENS_MOST)
    return made


def told(script, made):
    """What of these edits concerns this script, as lines."""
    lines = [f"model {script.model} is {made['model']}"]
    lines += [f"{name} {made['add'][name]} is added (the host's memory is shared by all)" for name in made["add"]]
    if "baton_transport" in made["json"].get("--kv-transfer-config", {}).get("kv_connector_extra_config", {}):
        lines.append("--kv-transfer-config says TCP: these namespaces share a machine, real hosts don't")
    lines += [f"{name} {script.one(name)} is {value}: {WHY_SET[name]}"
              for name, value in made["set"].items() if name in script.options and script.one(name) != value]
    reasons = {}
    for name, why in made["drop"].items():
        if name in script.options:
            reasons.setdefault(why, []).append(name)
    return lines + [f"left out {', '.join(names)}: {why}" for why, names in reasons.items()]


def reference_words(script, model_folder, checkpoint, port):
    """The command line of the one-rank engine of the same checkpoint."""
    words = ["serve", str(model_folder), "--host", "127.0.0.1", "--port", str(port), "--kv-cache-memory-bytes",
             str(CACHE_BYTES_PER_TOKEN[checkpoint] * 4 * int(REFERENCE_SIZES["--max-model-len"]))]
    for name, value in REFERENCE_SIZES.items():
        words += [name, value]
    for name in REFERENCE_FLAGS:
        if name in script.options:
            words += [name, *script.options[name]]
    return words
