#!/usr/bin/env python3
"""Logits of tiny Llamas by the float64 reference llama_numpy.py, for src/models/tiny_llama_test.cc.

    python models_tiny_llama.py > src/models/testdata/tiny_llama_numpy.json

The weights are a fixed function of tensor and element, which the test computes too: u(name, i) = top 24 bits of
splitmix64(fnv1a64(name) + i), over 2^23, minus 1; a matrix or bias is u / 4, a norm 1 + u / 8, an embedding u. bf16: the
lower 16 bits of the fp32 value cut off. q8_0: (top 7 bits - 64) / 256.
"""
import json
import sys

import numpy as np

from llama_numpy import forward

BASE = dict(hidden=64, intermediate=96, vocab=128, layers=2, heads=4, kv_heads=2, head_dim=16, rope_dim=16, theta=10000.0,
            eps=1e-5, interleaved=False)
CASES = {
    "hf_f32_llama3_biases": dict(BASE, llama3=(8.0, 1.0, 4.0, 32.0), biases=True),
    "hf_bf16_tied_linear": dict(BASE, linear=4.0, tied=True, format="bf16", activations="bf16"),
    "hf_f32_explicit_head_dim": dict(BASE, head_dim=24, rope_dim=24, theta=500000.0),
    "gguf_f32_rope_factors": dict(BASE, interleaved=True, factors=[1, 1, 1.5, 2, 4, 8, 8, 8]),
    "gguf_q8_0_tied": dict(BASE, interleaved=True, tied=True, format="q8_0", activations="int8"),
}
IDS = [(37 * i + 11) % 128 for i in range(40)]
ROWS = [0, 1, 17, 39]


def bits(name, count):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(h) + np.arange(count, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def uniform(name, count):
    return ((bits(name, count) >> np.uint64(40)).astype(np.float64) / 2**23 - 1).astype(np.float32)


def make_get(cfg):
    sizes = dict(q=(cfg["heads"] * cfg["head_dim"], cfg["hidden"]), k=(cfg["kv_heads"] * cfg["head_dim"], cfg["hidden"]),
                 v=(cfg["kv_heads"] * cfg["head_dim"], cfg["hidden"]), o=(cfg["hidden"], cfg["heads"] * cfg["head_dim"]),
                 gate=(cfg["intermediate"], cfg["hidden"]), up=(cfg["intermediate"], cfg["hidden"]),
                 down=(cfg["hidden"], cfg["intermediate"]), embedding=(cfg["vocab"], cfg["hidden"]),
                 lm_head=(cfg["vocab"], cfg["hidden"]))
    top_level = ("embedding", "lm_head", "final_norm")

    def get(role, layer):
        if role == "lm_head" and cfg.get("tied"):
            role = "embedding"
        name = role if role in top_level else f"{role}.{layer}"
        if role.endswith("norm"):
            return (1 + uniform(name, cfg["hidden"]) / 8).astype(np.float64)
        if role.endswith("_bias"):
            return (uniform(name, sizes[role[:-5]][0]) / 4).astype(np.float64) if cfg.get("biases") else None
        rows, columns = sizes[role]
        if cfg.get("format") == "q8_0":
            values = ((bits(name, rows * columns) >> np.uint64(57)).astype(np.float64) - 64) / 256
            return values.reshape(rows, columns)
        values = uniform(name, rows * columns) * np.float32(1 if role == "embedding" else 0.25)
        if cfg.get("format") == "bf16":
            values = (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        return values.astype(np.float64).reshape(rows, columns)

    return get


def main():
    out = {"made_by": "tools/goldens/models_tiny_llama.py", "numpy": np.__version__, "ids": IDS, "rows": ROWS, "cases": {}}
    for name, cfg in CASES.items():
        logits = forward(cfg, make_get(cfg), IDS)
        out["cases"][name] = [[round(float(v), 6) for v in logits[row]] for row in ROWS]
    json.dump(out, sys.stdout)
    print()


main()
