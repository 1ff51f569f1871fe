#!/usr/bin/env python3
"""Runs the float64 reference over the tiny families and writes their goldens:

    python manifests.py && python make_goldens.py [family...]

Prints the identities that the reference itself must keep and how far choices (routing, top-k) are from ties.
"""

import math
import sys

import numpy as np

import ref_basics
from ref_model import forward, settings
from tiny import ROOT, apart, load, prompt, write_blobs

FAMILIES = ["deepseek_v3", "deepseek_v32", "deepseek_v32_options", "kimi_k25", "kimi_linear", "kimi_k3", "kimi_k31"]
PROMPTS = 100
LENGTHS = {"long": 40, "short": 10}


def margins(out):
    return {key: min((f[key] for f in out.told if key in f), default=math.inf) for key in ("route_margin", "index_margin")}


def choose_ids(s, arrays, tokens):
    """The prompt of the first PROMPTS whose choices are farthest from ties: prompts are fixed functions of a number."""
    best = max(range(PROMPTS), key=lambda n: min(margins(forward(s, arrays, prompt(n, tokens))).values()))
    return best, prompt(best, tokens)


def difference(a, b):
    """Largest relative L2 over layers and logits."""
    return max(map(apart, [*a.layers, a.logits], [*b.layers, b.logits]))


def stack(told, key):
    found = [(i, f[key]) for i, f in enumerate(told) if key in f]
    if not found:
        return None
    return {key: np.stack([value for _, value in found])}, [i for i, _ in found]


def identities(s, arrays, ids, out):
    print("    absorbed - plain      %.1e" % difference(forward(s, arrays, ids, absorbed=True), out))
    if s.full is not None:
        for size in (4, 16, 64):
            print("    chunks of %2d - tokens %.1e" % (size, difference(forward(s, arrays, ids, chunk=size), out)))
    if s.index_topk:
        dense, wide = settings_like(s, index_topk=None), settings_like(s, index_topk=len(ids))
        a, b = forward(dense, arrays, ids), forward(wide, arrays, ids)
        print(
            "    topk >= len - dense   %.1e   (topk %d - dense %.1e)" % (difference(b, a), s.index_topk, difference(out, a))
        )
    single = forward(s, arrays, ids, dtype=np.float32)
    print("    float32 - float64     %.1e" % difference(single, out))
    if s.q_lora:
        print("    lora eps 1e-5 - 1e-6  %.1e" % difference(forward(settings_like(s, lora_eps=1e-5), arrays, ids), out))


def settings_like(s, **changes):
    return type(s)(**{**vars(s), **changes})


def shape_of(out, s):
    keep = [f["keep"] for f in out.told if "keep" in f]
    top = [f["largest_p"] for f in out.told if "largest_p" in f]
    used = [len(np.unique(f["experts"])) for f in out.told if "experts" in f]
    text = "largest attention weight %.2f" % np.mean(top)
    if keep:
        text += ", kept per step %.2f..%.2f (5..95%%)" % tuple(np.quantile(np.stack(keep), (0.05, 0.95)))
    p = ref_basics.softmax(out.logits).max(axis=-1)
    print(
        f"    {text}, experts used per layer {min(used)}..{max(used)}, top token's p {p.min():.2f}..{p.max():.2f}, "
        f"rms of layers {', '.join('%.1f' % math.sqrt(np.mean(x * x)) for x in out.layers)}"
    )


def write(family, s, case, ids, out, number):
    arrays = dict(ids=ids.astype(np.int32), layers=out.layers, final=out.final, logits=out.logits)
    of_layers = {}
    for key in ("experts", "expert_weights", "selected", "index_keys", "latent", "rope_key", "kda_state", "conv_window"):
        found = stack(out.told, key)
        if found:
            arrays.update(found[0])
            of_layers[key] = found[1]
    if out.bank is not None:
        arrays["bank"] = out.bank
    extra = dict(
        family=family,
        case=case,
        made_by="tools/goldens/families/make_goldens.py",
        reference="float64 numpy",
        numpy=np.__version__,
        prompt_number=number,
        lora_norm_eps=s.lora_eps,
        unit_norm_eps=s.unit_eps,
        rope_key_order="pairs rotated in place",
        margins={k: (round(v, 6) if math.isfinite(v) else None) for k, v in margins(out).items()},
        layers_of=of_layers,
    )
    write_blobs(ROOT / family / case, arrays, extra)


def main():
    for family in sys.argv[1:] or FAMILIES:
        config, arrays = load(family)
        s = settings(config)
        for case, tokens in LENGTHS.items():
            number, ids = choose_ids(s, arrays, tokens)
            out = forward(s, arrays, ids)
            print(f"{family} {case}: prompt {number}, margins", {k: "%.1e" % v for k, v in margins(out).items()})
            if case == "long":
                shape_of(out, s)
                identities(s, arrays, ids, out)
            write(family, s, case, ids, out, number)


if __name__ == "__main__":
    main()
