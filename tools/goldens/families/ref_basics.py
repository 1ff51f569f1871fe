"""Norms, softmax, and rope with yarn, in float64."""

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
