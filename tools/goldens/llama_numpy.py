"""A Llama in float64 numpy: the plain formulas of the Llama papers and of transformers' modeling_llama.py, nothing shared
with Baton's code. Weights are exact (dequantised)."""
import math

import numpy as np


def rope_angles(cfg):
    half = cfg["rope_dim"] // 2
    freq = np.array([cfg["theta"] ** (-2.0 * i / cfg["rope_dim"]) for i in range(half)])
    if "linear" in cfg:
        freq = freq / cfg["linear"]
    if "llama3" in cfg:  # modeling_rope_utils.py, _compute_llama3_parameters
        factor, low, high, old = cfg["llama3"]
        wavelen = 2 * math.pi / freq
        scaled = np.where(wavelen > old / low, freq / factor, freq)
        smooth = (old / wavelen - low) / (high - low)
        blended = (1 - smooth) * scaled / factor + smooth * scaled
        medium = ~(wavelen < old / high) & ~(wavelen > old / low)
        freq = np.where(medium, blended, scaled)
    if "factors" in cfg:
        freq = freq / np.asarray(cfg["factors"], dtype=np.float64)
    return freq


def rotate(x, angles, interleaved):  # x: [tokens, heads, dim]
    cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
    half = angles.shape[1]
    out = x.copy()
    if interleaved:
        a, b = x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2]
        out[..., 0 : 2 * half : 2], out[..., 1 : 2 * half : 2] = a * cos - b * sin, b * cos + a * sin
    else:
        a, b = x[..., :half], x[..., half : 2 * half]
        out[..., :half], out[..., half : 2 * half] = a * cos - b * sin, b * cos + a * sin
    return out


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rounded(x, kind):
    """Activations as Baton's formats hold them: bf16 (nearest even), or int8 with a scale of max/127 per 32 inputs."""
    if kind == "bf16":
        bits = x.astype(np.float32).view(np.uint32)
        bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        return (bits & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)
    if kind == "int8":
        groups = x.reshape(*x.shape[:-1], -1, 32)
        scale = np.abs(groups).max(-1, keepdims=True) / 127
        return (np.rint(groups / np.where(scale == 0, 1, scale)) * scale).reshape(x.shape)
    return x


def forward(cfg, get, ids):
    """cfg["activations"]: how inputs of matrices are rounded (None: not at all). get(role, layer) -> float64 array or None; roles: embedding final_norm lm_head attn_norm q k v o mlp_norm gate up
    down, and role + '_bias'. Returns logits [tokens, vocab]."""

    def linear(x, role, layer):
        y = rounded(x, cfg.get("activations")) @ get(role, layer).T
        bias = get(role + "_bias", layer)
        return y if bias is None else y + bias

    heads, kv_heads, dim = cfg["heads"], cfg["kv_heads"], cfg["head_dim"]
    n = len(ids)
    angles = np.arange(n)[:, None] * rope_angles(cfg)[None, :]
    mask = np.triu(np.full((n, n), -np.inf), 1)
    x = get("embedding", 0)[ids]
    for layer in range(cfg["layers"]):
        h = rms_norm(x, get("attn_norm", layer), cfg["eps"])
        q = rotate(linear(h, "q", layer).reshape(n, heads, dim), angles, cfg["interleaved"])
        k = rotate(linear(h, "k", layer).reshape(n, kv_heads, dim), angles, cfg["interleaved"])
        v = linear(h, "v", layer).reshape(n, kv_heads, dim)
        out = np.zeros((n, heads, dim))
        for head in range(heads):
            kv = head // (heads // kv_heads)
            scores = q[:, head] @ k[:, kv].T / math.sqrt(dim) + mask
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = weights / weights.sum(-1, keepdims=True) @ v[:, kv]
        x = x + linear(out.reshape(n, heads * dim), "o", layer)
        h = rms_norm(x, get("mlp_norm", layer), cfg["eps"])
        gate = linear(h, "gate", layer)
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(h, "up", layer), "down", layer)
    return rounded(rms_norm(x, get("final_norm", 0), cfg["eps"]), cfg.get("activations")) @ get("lm_head", 0).T
