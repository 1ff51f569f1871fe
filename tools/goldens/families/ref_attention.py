"""MLA (plain and absorbed), rope with yarn, and the lightning indexer, in float64."""

import math

import numpy as np


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + eps) * weight + bias


def sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def magnitude(factor, mscale):
    return 0.1 * mscale * math.log(factor) + 1 if factor > 1 else 1.0


def rope_tables(tokens, dim, theta, scaling):
    """cos and sin [tokens, dim/2], times yarn's amplitude."""
    i = np.arange(dim // 2)
    freq = theta ** (-2.0 * i / dim)
    amplitude = 1.0
    if scaling:
        factor, original = scaling["factor"], scaling["original_max_position_embeddings"]

        def turns(beta):  # the dimension that turns beta times over the original length
            return dim * math.log(original / (2 * math.pi * beta)) / (2 * math.log(theta))

        low = max(math.floor(turns(scaling["beta_fast"])), 0)
        high = min(math.ceil(turns(scaling["beta_slow"])), dim - 1)
        ramp = np.clip((i - low) / max(high - low, 0.001), 0, 1)
        freq = freq / factor * ramp + freq * (1 - ramp)
        amplitude = magnitude(factor, scaling["mscale"]) / magnitude(factor, scaling["mscale_all_dim"])
    angle = np.arange(tokens)[:, None] * freq[None, :]
    return amplitude * np.cos(angle), amplitude * np.sin(angle)


def rotate(x, tables, interleaved):
    """x [tokens, ..., dim]: pairs (2i, 2i+1) if interleaved, else (i, i + dim/2)."""
    cos, sin = (t.reshape(t.shape[0], *[1] * (x.ndim - 2), t.shape[1]) for t in tables)
    out = np.empty_like(x)
    half = x.shape[-1] // 2
    first, second = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(half), slice(half, None))
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., second] * cos + x[..., first] * sin
    return out


def causal(tokens):
    return np.tril(np.ones((tokens, tokens), dtype=bool))


def index_scores(s, w, x, cq):
    """[tokens, tokens] scores of the lightning indexer, -inf in the future."""
    tokens, heads, dim = x.shape[0], s.index_heads, s.index_dim
    q = (cq @ w("indexer.wq_b.weight").T).reshape(tokens, heads, dim)
    k = layer_norm(x @ w("indexer.wk.weight").T, w("indexer.k_norm.weight"), w("indexer.k_norm.bias"), s.index_eps)
    if not s.nope:
        tables = rope_tables(tokens, s.rope, s.theta, s.scaling)
        q[..., : s.rope] = rotate(q[..., : s.rope], tables, interleaved=False)
        k[..., : s.rope] = rotate(k[..., : s.rope], tables, interleaved=False)
    weight = x @ w("indexer.weights_proj.weight").T * heads**-0.5 * dim**-0.5
    score = np.einsum("th,hts->ts", weight, np.maximum(np.einsum("thd,sd->hts", q, k), 0))
    return np.where(causal(tokens), score, -np.inf), k


def select(score, topk):
    """Mask of the topk best per row (lower position first among equals), the positions [tokens, topk] in ascending order
    filled up with -1, and the smallest gap between the last kept and the first dropped in units of the row's deviation."""
    tokens = score.shape[0]
    mask = np.zeros_like(score, dtype=bool)
    positions = np.full((tokens, topk), -1, dtype=np.int32)
    margin = math.inf
    for t in range(tokens):
        order = sorted(range(t + 1), key=lambda j: (-score[t, j], j))
        kept = sorted(order[:topk])
        mask[t, kept] = True
        positions[t, : len(kept)] = kept
        if t + 1 > topk:
            gap, deviation = score[t, order[topk - 1]] - score[t, order[topk]], score[t, : t + 1].std()
            margin = min(margin, gap / deviation if gap else 0.0)
    return mask, positions, margin


def mla(s, w, x, absorbed=False):
    """w(name) gives a tensor of self_attn. Returns (output, facts)."""
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
        score, facts["index_keys"] = index_scores(s, w, x, cq)
        mask, facts["selected"], facts["index_margin"] = select(score, s.index_topk)
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
