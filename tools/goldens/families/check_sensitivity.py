#!/usr/bin/env python3
"""How far each of a list of plausible mistakes moves the logits (or the index keys, if farther) of the 40-token goldens:

    python check_sensitivity.py

A golden that a mistake doesn't move can't catch it. numpy only.
"""

import numpy as np

import ref_attention
import ref_ffn
import ref_indexer
import ref_kda
import ref_model
from make_goldens import FAMILIES, settings_like
from ref_model import forward, settings
from tiny import ROOT, apart, load, read_blobs

SETTINGS = {
    "groups ignored": dict(groups=1),
    "weights not renormalised": dict(renormalize=False),
    "weights not scaled": dict(scaling_factor=1.0),
    "yarn ignored": dict(scaling=None),
    "no output gate": dict(output_gate=False),
    "rotated although NoPE": dict(nope=False),
    "SiLU for SiTU": dict(situ=False),
    "SiTU without its linear bound": dict(situ_linear_beta=1e9),
    "latent norm left out": dict(latent_norm=False),
    "other decay law": dict(gate_lower_bound=None),
    "bank of 4 layers": dict(res_block=4),
    "lora eps 1e-5": dict(lora_eps=1e-5),
    "unit eps 1e-5": dict(unit_eps=1e-5),
    "indexer eps 1e-5": dict(index_eps=1e-5),
    "other rotation of index keys": dict(index_interleaved="other"),
    "top-k one more": dict(index_topk=9),
    "every layer its own choice": dict(index_own=[True] * 16),
}
PATCHES = {
    "MLA rotated by halves": (ref_attention, "rotate", lambda old: lambda x, t, interleaved: old(x, t, False)),
    "convolution reversed": (ref_kda, "convolve", lambda old: lambda z, w: old(z, w[..., ::-1])),
    "q and k not normalised": (ref_kda, "unit", lambda old: lambda x, eps: x),
    "bias in the expert weights": (ref_ffn, "sigmoid", lambda old: lambda x: old(x) + 1e-3 * (x.shape[-1] == 8)),
    "index scores without ReLU": (ref_indexer, "scores", lambda old: lambda q, k, w: np.einsum("th,thd,sd->ts", w, q, k)),
    "mix without its norm": (ref_model, "mix", lambda old: lambda x, proj, norm, eps: old(x, proj, np.ones_like(norm), eps)),
}


def relevant(s, changes):
    """The changes, if they change anything of this family."""
    if "index_own" in changes and all(s.index_own):
        return None
    if changes.get("index_interleaved") == "other":
        changes = dict(index_interleaved=not s.index_interleaved)
        return changes if s.index_topk and not s.nope else None
    if any(k.startswith("index_") for k in changes) and not s.index_topk:
        return None
    return changes if any(k in vars(s) and getattr(s, k) != v for k, v in changes.items()) else None


def moved(s, arrays, ids, want):
    try:
        out = forward(s, arrays, ids)
        keys = [f["index_keys"] for f in out.told if "index_keys" in f]
        return max([apart(out.logits, want["logits"]), *(map(apart, keys[:1], want.get("index_keys", [])))])
    except (KeyError, StopIteration, ValueError):
        return None  # the mistake asks for a tensor that isn't there


def main():
    for family in FAMILIES:
        config, arrays = load(family)
        s = settings(config)
        _, blobs = read_blobs(ROOT / family / "long")
        ids = blobs["ids"]
        found = {}
        for name, changes in SETTINGS.items():
            if changes := relevant(s, changes):
                found[name] = moved(settings_like(s, **changes), arrays, ids, blobs)
        for name, (module, attribute, wrap) in PATCHES.items():
            old = getattr(module, attribute)
            setattr(module, attribute, wrap(old))
            found[name] = moved(s, arrays, ids, blobs)
            setattr(module, attribute, old)
        found = {k: v for k, v in found.items() if v is not None and v > 1e-6}
        print(f"{family}: " + ", ".join(f"{k} {v:.0e}" for k, v in sorted(found.items(), key=lambda item: item[1])))


if __name__ == "__main__":
    main()
