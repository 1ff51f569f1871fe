"""MLA in float64, plain and absorbed, dense or over the positions that an indexer chose."""

import numpy as np

from ref_basics import causal, magnitude, rms_norm, rope_tables, rotate, sigmoid, softmax
from ref_indexer import index_scores, select


def choose(s, w, x, cq, earlier):
    """What the tokens of a layer attend to, as facts: mask, selected, index_margin; those of an earlier layer if it has no
    indexer of its own."""
    if earlier is not None:
        return {key: earlier[key] for key in ("mask", "selected")}
    score, keys = index_scores(s, w, x, cq)
    mask, selected, margin = select(score, s.index_topk)
    return dict(mask=mask, selected=selected, index_margin=margin, index_keys=keys)


def mla(s, w, x, absorbed=False, earlier=None):
    """w(name) gives a tensor of self_attn; earlier are the facts of the layer whose choice this one shares. Returns
    (output, facts)."""
    tokens, heads = x.shape[0], s.heads
    facts = {}
    if s.q_lora:
        cq = rms_norm(x @ w("q_a_proj.weight").T, w("q_a_layernorm.weight"), s.lora_eps)
        q = cq @ w("q_b_proj.weight").T
    else:
        cq, q = None, x @ w("q_proj.weight").T
    q = q.reshape(tokens, heads, s.nope_dim + s.rope)
    q_nope, q_pe = q[..., : s.nope_dim], q[..., s.nope_dim :]
    kv = x @ w("kv_a_proj_with_mqa.weight").T
    latent = rms_norm(kv[:, : s.kv_lora], w("kv_a_layernorm.weight"), s.lora_eps)
    k_pe = kv[:, s.kv_lora :]
    scale = (s.nope_dim + s.rope) ** -0.5
    if not s.nope:
        tables = rope_tables(tokens, s.rope, s.theta, s.scaling)
        q_pe, k_pe = rotate(q_pe, tables, True), rotate(k_pe, tables, True)
        if s.scaling:
            scale *= magnitude(s.scaling["factor"], s.scaling["mscale_all_dim"]) ** 2
    mask = causal(tokens)
    if s.index_topk:
        facts.update(choose(s, w, x, cq, earlier))
        mask = facts["mask"]
    kv_b = w("kv_b_proj.weight").reshape(heads, s.nope_dim + s.v, s.kv_lora)
    w_uk, w_uv = kv_b[:, : s.nope_dim], kv_b[:, s.nope_dim :]
    if absorbed:
        qa = np.einsum("thn,hnl->htl", q_nope, w_uk)
        logits = np.einsum("htl,sl->hts", qa, latent)
    else:
        k_nope = np.einsum("sl,hnl->hsn", latent, w_uk)
        logits = np.einsum("thn,hsn->hts", q_nope, k_nope)
    logits = (logits + np.einsum("thr,sr->hts", q_pe, k_pe)) * scale
    p = softmax(np.where(mask, logits, -np.inf))
    if absorbed:
        out = np.einsum("htl,hvl->thv", np.einsum("hts,sl->htl", p, latent), w_uv)
    else:
        out = np.einsum("hts,hsv->thv", p, np.einsum("sl,hvl->hsv", latent, w_uv))
    out = out.reshape(tokens, heads * s.v)
    if s.output_gate:
        out = out * sigmoid(x @ w("g_proj.weight").T)
    facts.update(latent=latent, rope_key=k_pe, largest_p=p[:, 8:].max(axis=-1).mean())
    return out @ w("o_proj.weight").T, facts
