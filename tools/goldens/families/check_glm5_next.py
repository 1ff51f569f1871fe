#!/usr/bin/env python3
"""Checks pieces of the reference for kimi_k31 against the nearest released relative, transformers' glm5_next:

    python check_glm5_next.py        needs torch, transformers

* its KDA layer with a bounded decay, given a kimi_k31 layer's weights (its low-rank output gate replaced by K3's full one);
* its indexer, which does not rotate, given a kimi_k31 layer's weights and groups of one token: the positions chosen;
* its indexer with keys pooled by 4: the positions chosen, which also go to indexer_pooling/.
"""

from types import SimpleNamespace

import numpy as np
import torch
import transformers
from transformers.models.glm5_next import modeling_glm5_next as glm

from ref_basics import rms_norm
from ref_indexer import index_scores, pooled_select, select
from ref_kda import kda
from ref_model import settings
from tiny import ROOT, Manifest, apart, load, uniform, write_blobs

TOKENS, HIDDEN, LORA = 40, 128, 48
KDA_LAYER, MLA_LAYER = 1, 3


def config(s, kpool):
    return SimpleNamespace(
        hidden_size=HIDDEN,
        q_lora_rank=LORA,
        qk_rope_head_dim=0,
        index_n_heads=s.index_heads,
        index_head_dim=s.index_dim,
        index_topk=s.index_topk,
        index_kpool=kpool,
        index_kpool_always_select_tail=True,
        linear_num_heads=s.kda_heads,
        linear_head_dim=s.kda_dim,
        linear_conv_kernel_dim=4,
        linear_lower_bound=s.gate_lower_bound,
        hidden_act="silu",
        rms_norm_eps=s.eps,
        layer_types=["linear_attention"] * s.layers,
    )


def inputs(number):
    """Normed rows like a layer's input and like q_a's output."""
    x = uniform(f"pieces.{number}.x", TOKENS * HIDDEN).astype(np.float64).reshape(TOKENS, HIDDEN)
    cq = uniform(f"pieces.{number}.cq", TOKENS * LORA).astype(np.float64).reshape(TOKENS, LORA)
    return rms_norm(x, 1, 1e-6).astype(np.float32), rms_norm(cq, 1, 1e-6).astype(np.float32)


def run_kda(s, arrays, base, x):
    with torch.no_grad():
        module = glm.Glm5NextTextLinearAttention(config(s, 1), KDA_LAYER).eval()
        for target, source in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("b", "b_proj"), ("o", "o_proj")):
            getattr(module, f"{target}_proj").weight.copy_(torch.tensor(arrays[f"{base}{source}.weight"]))
        module.conv1d.weight.copy_(torch.tensor(np.concatenate([arrays[f"{base}{c}_conv1d.weight"] for c in "qkv"])))
        gate = module.forget_gate
        gate.f_a_proj.weight.copy_(torch.tensor(arrays[base + "f_a_proj.weight"]))
        gate.f_b_proj.weight.copy_(torch.tensor(arrays[base + "f_b_proj.weight"]))
        gate.dt_bias.copy_(torch.tensor(arrays[base + "dt_bias"]))
        gate.A_log.copy_(torch.tensor(arrays[base + "A_log"][: s.kda_heads]))
        module.o_norm.weight.copy_(torch.tensor(arrays[base + "o_norm.weight"]))
        module.g_a_proj = torch.nn.Identity()
        module.g_b_proj = torch.nn.Linear(HIDDEN, s.kda_heads * s.kda_dim, bias=False)
        module.g_b_proj.weight.copy_(torch.tensor(arrays[base + "g_proj.weight"]))
        return module(torch.tensor(x)[None])[0].double().numpy()


def run_indexer(s, w, x, cq, kpool):
    """Sets of positions chosen per row."""
    with torch.no_grad():
        module = glm.Glm5NextTextIndexer(config(s, kpool), MLA_LAYER).eval()
        for name in ("wq_b.weight", "wk.weight", "k_norm.weight", "k_norm.bias", "weights_proj.weight"):
            module.get_parameter(name).copy_(torch.tensor(w("indexer." + name)))
        if kpool > 1:
            for name in ("index_kpool_compress_gate", "index_kpool_compress_ape"):
                module.get_parameter(name).copy_(torch.tensor(w("indexer." + name)))
        mask = torch.ones(1, TOKENS, dtype=torch.bool)
        rows = module(torch.tensor(x)[None], torch.tensor(cq)[None], mask, None)[0].numpy()
    return [{p for p in row.tolist() if p >= 0} for row in rows]


def sets(positions):
    return [{p for p in row.tolist() if p >= 0} for row in positions]


def farthest(margin_of):
    """The number of the input whose choice is farthest from ties."""
    return max(range(100), key=lambda n: margin_of(*(a.astype(np.float64) for a in inputs(n))))


def pooling_weights(s):
    m = Manifest()
    m.matrix("indexer.wq_b.weight", s.index_heads * s.index_dim, LORA)
    m.matrix("indexer.wk.weight", s.index_dim, HIDDEN)
    m.norm("indexer.k_norm.weight", s.index_dim)
    m.add("indexer.k_norm.bias", (s.index_dim,), "bias", 0.25)
    m.matrix("indexer.weights_proj.weight", s.index_heads, HIDDEN)
    m.matrix("indexer.index_kpool_compress_gate", s.index_dim, HIDDEN)
    m.add("indexer.index_kpool_compress_ape", (s.index_kpool, s.index_dim), "bias", 0.5)
    options = dict(index_n_heads=s.index_heads, index_head_dim=s.index_dim, index_topk=s.index_topk)
    m.write(
        "indexer_pooling", dict(options, index_kpool=s.index_kpool, index_kpool_always_select_tail=True, indexer_rope="none")
    )
    return load("indexer_pooling")[1]


def check_pooling(s):
    s.index_kpool = 4
    arrays = pooling_weights(s)

    def wide(name):
        return arrays[name].astype(np.float64)

    number = farthest(lambda x, cq: pooled_select(s, wide, x, cq)[1])
    x, cq = inputs(number)
    selected, margin = pooled_select(s, wide, x.astype(np.float64), cq.astype(np.float64))
    equal = run_indexer(s, arrays.__getitem__, x, cq, s.index_kpool) == sets(selected)
    print(f"pooled by {s.index_kpool}: positions equal {equal}, margin {margin:.1e}")
    extra = dict(made_by="tools/goldens/families/check_glm5_next.py", reference="float64 numpy", margin=round(margin, 6))
    write_blobs(ROOT / "indexer_pooling" / "long", dict(x=x, cq=cq, selected=selected), extra)


def main():
    print("torch", torch.__version__, "transformers", transformers.__version__, "numpy", np.__version__)
    torch.set_num_threads(1)
    tiny_config, arrays = load("kimi_k31")
    s = settings(tiny_config)
    base = f"{s.prefix}model.layers.{KDA_LAYER}.self_attn."
    x, _ = inputs(0)
    want, _ = kda(s, lambda n: arrays[base + n].astype(np.float64), x.astype(np.float64))
    print(f"bounded KDA: {apart(run_kda(s, arrays, base, x), want):.1e}")

    base = f"{s.prefix}model.layers.{MLA_LAYER}.self_attn."

    def wide(name):
        return arrays[base + name].astype(np.float64)

    def choice(x, cq):
        return select(index_scores(s, wide, x, cq)[0], s.index_topk)

    number = farthest(lambda x, cq: choice(x, cq)[2])
    x, cq = inputs(number)
    _, selected, margin = choice(x.astype(np.float64), cq.astype(np.float64))
    got = run_indexer(s, lambda n: arrays[base + n], x, cq, 1)
    print(f"unrotated indexer: positions equal {got == sets(selected)}, margin {margin:.1e}")
    check_pooling(s)


if __name__ == "__main__":
    main()
