"""Kimi delta attention in float64, token by token and chunk by chunk."""

import numpy as np

from ref_basics import rms_norm, sigmoid


def convolve(z, weight):
    """Causal depthwise convolution then SiLU: z [tokens, channels], weight [channels, 1, width]."""
    width = weight.shape[-1]
    padded = np.concatenate([np.zeros((width - 1, z.shape[1])), z])
    y = sum(padded[j : j + z.shape[0]] * weight[:, 0, j] for j in range(width))
    return y * sigmoid(y)


def unit(x, eps):
    return x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + eps)


def recurrent(q, k, v, g, beta, state):
    """One head: q, k, g [tokens, K]; v [tokens, V]; beta [tokens]; state [K, V]."""
    out = np.empty_like(v)
    for t in range(q.shape[0]):
        state = np.exp(g[t])[:, None] * state
        u = beta[t] * (v[t] - k[t] @ state)
        state = state + np.outer(k[t], u)
        out[t] = q[t] @ state
    return out, state


def chunked(q, k, v, g, beta, state, size):
    """The same by chunks of `size` tokens, each solved at once."""
    out = np.empty_like(v)
    for start in range(0, q.shape[0], size):
        part = slice(start, min(start + size, q.shape[0]))
        qc, kc, vc, bc = q[part], k[part], v[part], beta[part][:, None]
        total = np.cumsum(g[part], axis=0)
        n = total.shape[0]
        between = np.exp(np.minimum(total[:, None] - total[None, :], 0))  # [t, i, K], used for i <= t only
        overlap = bc * np.einsum("td,id,tid->ti", kc, kc, between)
        lower = np.tril(overlap, -1)
        u = np.linalg.solve(np.eye(n) + lower, bc * (vc - (kc * np.exp(total)) @ state))
        read = np.tril(np.einsum("td,id,tid->ti", qc, kc, between))
        out[part] = (qc * np.exp(total)) @ state + read @ u
        state = np.exp(total[-1])[:, None] * state + (kc * np.exp(total[-1] - total)).T @ u
    return out, state


def decay(s, r, a_log, dt_bias):
    """log of what a channel keeps: r [tokens, heads, K], a_log [heads], dt_bias [heads, K]."""
    a = np.exp(a_log)[:, None]
    if s.gate_lower_bound is not None:
        return s.gate_lower_bound * sigmoid(a * (r + dt_bias))
    return -a * np.logaddexp(0, r + dt_bias)


def kda(s, w, x, chunk=0):
    """Returns (output, facts): state [heads, K, V] and the conv window [3, width-1, heads*K] (q, k, v; oldest first)."""
    tokens, heads, dim = x.shape[0], s.kda_heads, s.kda_dim
    pre = [x @ w(f"{c}_proj.weight").T for c in "qkv"]
    q, k, v = (convolve(z, w(f"{c}_conv1d.weight")).reshape(tokens, heads, dim) for z, c in zip(pre, "qkv"))
    q, k = unit(q, s.unit_eps) * dim**-0.5, unit(k, s.unit_eps)
    r = (x @ w("f_a_proj.weight").T @ w("f_b_proj.weight").T).reshape(tokens, heads, dim)
    g = decay(s, r, w("A_log").reshape(-1)[:heads], w("dt_bias").reshape(heads, dim))
    beta = sigmoid(x @ w("b_proj.weight").T)
    o, state = np.empty_like(v), np.zeros((heads, dim, dim))
    for h in range(heads):
        head = (q[:, h], k[:, h], v[:, h], g[:, h], beta[:, h], state[h])
        o[:, h], state[h] = chunked(*head, chunk) if chunk else recurrent(*head)
    gate = x @ w("g_proj.weight").T if s.full_rank_gate else x @ w("g_a_proj.weight").T @ w("g_b_proj.weight").T
    y = rms_norm(o, w("o_norm.weight"), s.eps) * sigmoid(gate.reshape(tokens, heads, dim))
    width = w("q_conv1d.weight").shape[-1]
    window = np.stack([np.concatenate([np.zeros((width - 1, z.shape[1])), z])[-(width - 1) :] for z in pre])
    facts = dict(kda_state=state, conv_window=window, keep=np.exp(g), beta=beta)
    return y.reshape(tokens, heads * dim) @ w("o_proj.weight").T, facts
