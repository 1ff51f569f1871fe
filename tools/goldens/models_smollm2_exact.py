#!/usr/bin/env python3
"""How far llama.cpp is from exact arithmetic: the logits of smollm2_llama_cpp.json beside the float64 reference over the
same dequantised weights. Adds "exact" to each of the short cases.

    python models_smollm2_exact.py MODEL.gguf src/models/testdata/smollm2_llama_cpp.json
"""
import json
import sys

import gguf
import numpy as np

from llama_numpy import forward

NAMES = dict(embedding="token_embd", lm_head="token_embd", final_norm="output_norm", attn_norm="blk.{}.attn_norm",
             q="blk.{}.attn_q", k="blk.{}.attn_k", v="blk.{}.attn_v", o="blk.{}.attn_output", mlp_norm="blk.{}.ffn_norm",
             gate="blk.{}.ffn_gate", up="blk.{}.ffn_up", down="blk.{}.ffn_down")


def main():
    reader = gguf.GGUFReader(sys.argv[1])
    tensors = {t.name: t for t in reader.tensors}
    cache = {}

    def get(role, layer):
        if role.endswith("_bias"):
            return None
        name = NAMES[role].format(layer) + ".weight"
        if name not in cache:
            t = tensors[name]
            cache[name] = gguf.dequantize(t.data, t.tensor_type).astype(np.float64)
        return cache[name]

    cfg = dict(layers=30, heads=9, kv_heads=3, head_dim=64, rope_dim=64, theta=100000.0, eps=1e-5, interleaved=True)
    with open(sys.argv[2]) as file:
        data = json.load(file)
    for case in data["cases"]:
        if len(case["ids"]) > 100:
            continue
        logits = forward(cfg, get, case["ids"])[-1]
        case["exact"] = [round(float(logits[i]), 5) for i in case["logit_ids"]]
        error = np.abs(np.array(case["logits"]) - np.array(case["exact"]))
        print(f"{case['prompt'][:40]!r:45} llama.cpp: worst {error.max():.4f} mean {error.mean():.4f}", file=sys.stderr)
    data["exact_by"] = "tools/goldens/models_smollm2_exact.py"
    with open(sys.argv[2], "w") as file:
        json.dump(data, file)
        file.write("\n")


main()
