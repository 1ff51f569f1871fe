"""The lightning indexer in float64: scores, choice, and choice by pooled keys."""

import math

import numpy as np

from ref_basics import causal, layer_norm, rope_tables, rotate, softmax


def index_projections(s, w, x, cq):
    """Queries [tokens, heads, dim], keys [tokens, dim] and head weights [tokens, heads] of the lightning indexer."""
    tokens, heads, dim = x.shape[0], s.index_heads, s.index_dim
    q = (cq @ w("indexer.wq_b.weight").T).reshape(tokens, heads, dim)
    k = layer_norm(x @ w("indexer.wk.weight").T, w("indexer.k_norm.weight"), w("indexer.k_norm.bias"), s.index_eps)
    if not s.nope:
        tables = rope_tables(tokens, s.rope, s.theta, s.scaling)
        q[..., : s.rope] = rotate(q[..., : s.rope], tables, s.index_interleaved)
        k[..., : s.rope] = rotate(k[..., : s.rope], tables, s.index_interleaved)
    weight = x @ w("indexer.weights_proj.weight").T * heads**-0.5 * dim**-0.5
    return q, k, weight


def scores(q, k, weight):
    return np.einsum("th,hts->ts", weight, np.maximum(np.einsum("thd,sd->hts", q, k), 0))


def index_scores(s, w, x, cq):
    """[tokens, tokens] scores, -inf in the future; and the keys."""
    q, k, weight = index_projections(s, w, x, cq)
    return np.where(causal(x.shape[0]), scores(q, k, weight), -np.inf), k


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


def pooled_keys(s, w, x, keys):
    """One key for each complete group of s.index_kpool tokens: per channel an average, weighted by a softmax over the
    group's members of (gate x + a constant of the member's place)."""
    pools = x.shape[0] // s.index_kpool
    gate = x @ w("indexer.index_kpool_compress_gate").T
    grouped = (a[: pools * s.index_kpool].reshape(pools, s.index_kpool, -1) for a in (gate, keys))
    gate, keys = grouped
    weight = softmax((gate + w("indexer.index_kpool_compress_ape")).swapaxes(1, 2)).swapaxes(1, 2)
    return (weight * keys).sum(axis=1)


def pooled_select(s, w, x, cq):
    """Positions chosen by whole groups [tokens, topk + kpool - 1], ascending, filled up with -1, and the margin. A group can
    be chosen once its last token is visible; the tokens after the last complete group are always kept."""
    q, keys, weight = index_projections(s, w, x, cq)
    score = scores(q, pooled_keys(s, w, x, keys), weight)
    size, budget = s.index_kpool, s.index_topk // s.index_kpool
    positions = np.full((x.shape[0], s.index_topk + size - 1), -1, dtype=np.int32)
    margin = math.inf
    for t in range(x.shape[0]):
        complete = (t + 1) // size
        order = sorted(range(complete), key=lambda j: (-score[t, j], j))
        if complete > budget:
            margin = min(margin, (score[t, order[budget - 1]] - score[t, order[budget]]) / score[t, :complete].std())
        kept = sorted(p * size + j for p in order[:budget] for j in range(size)) + list(range(complete * size, t + 1))
        positions[t, : len(kept)] = kept
    return positions, margin
