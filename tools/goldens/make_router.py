#!/usr/bin/env python3
"""Writes tests/data/kernels/router.txt: logits, correction bias and the experts and weights that numpy chooses.

Authority: numpy in float64, from the formulas of DeepSeek-V3 (arXiv 2412.19437, section 2.1.2, and the gate of its
published modelling code): s = sigmoid or softmax; c = s + bias; the groups with the largest sum of their two best c; the
top k of c by a stable descending sort (equal scores: lower id first); weights from s. One case repeats values so that
scores, and group scores, tie exactly.

Format, one case: "case NAME experts top_k groups top_groups sigmoid|softmax renormalize scale rows", "bias ..." (empty:
none), then per row "logits ...", "ids ...", "weights ...".

Usage: python3 tools/goldens/make_router.py > tests/data/kernels/router.txt
"""
import numpy as np

CASES = [  # name, experts, k, groups, top groups, score, renormalise, scale, bias, ties
    ("deepseek_v3", 256, 8, 8, 4, "sigmoid", 1, 2.5, True, False),
    ("kimi_k2", 384, 8, 1, 1, "sigmoid", 1, 2.827, True, False),
    ("kimi_k3", 896, 16, 1, 1, "sigmoid", 1, 1.0, True, False),
    ("softmax", 60, 4, 1, 1, "softmax", 0, 1.0, False, False),
    ("softmax_normed", 128, 8, 1, 1, "softmax", 1, 1.0, False, False),
    ("ties", 64, 6, 8, 3, "sigmoid", 1, 1.5, True, True),
    ("all_experts", 8, 8, 2, 2, "sigmoid", 1, 1.0, True, False),
]
ROWS = 3


def choose(logits, bias, k, groups, top_groups, score, renormalise, scale):
    if score == "sigmoid":
        s = 1 / (1 + np.exp(-logits))
    else:
        e = np.exp(logits - logits.max())
        s = e / e.sum()
    c = s if bias is None else s + bias
    if groups > 1:
        by_group = c.reshape(groups, -1)
        group_scores = np.sort(by_group, axis=1)[:, -2:].sum(axis=1)
        kept = np.argsort(-group_scores, kind="stable")[:top_groups]
        masked = np.full_like(by_group, -np.inf)
        masked[kept] = by_group[kept]
        c = masked.reshape(-1)
    ids = np.argsort(-c, kind="stable")[:k]
    w = s[ids]
    if renormalise:
        w = w / (w.sum() + 1e-20)
    gap = np.diff(-np.sort(-c)[: k + 1])
    return ids, w * scale, gap


def text(values):
    return " ".join(f"{v:.9g}" for v in values)


def main():
    rng = np.random.default_rng(20261130)
    print(f"# numpy {np.__version__}; tools/goldens/make_router.py")
    for name, experts, k, groups, top_groups, score, renormalise, scale, has_bias, ties in CASES:
        print("case", name, experts, k, groups, top_groups, score, renormalise, scale, ROWS)
        bias = rng.normal(0, 0.1, experts).astype(np.float32) if has_bias else np.zeros(0, np.float32)
        if ties:  # few distinct values, exact in fp32
            bias = (rng.integers(0, 2, experts) * 0.25).astype(np.float32)
        print("bias", text(bias))
        for _ in range(ROWS):
            while True:
                logits = rng.normal(0, 1.5, experts).astype(np.float32)
                if ties:
                    logits = rng.integers(-1, 2, experts).astype(np.float32)
                ids, weights, gap = choose(logits.astype(np.float64), bias.astype(np.float64) if has_bias else None, k,
                                           groups, top_groups, score, renormalise, scale)
                # Without ties on purpose, no two scores may be nearer than fp32 can tell apart.
                if ties or np.all(np.abs(gap[np.isfinite(gap)]) > 1e-6 * (1 if score == "sigmoid" else 0.01)):
                    break
            print("logits", text(logits))
            print("ids", " ".join(map(str, ids)))
            print("weights", text(weights))


main()
