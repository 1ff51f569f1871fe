"""Dense MLP, routing and experts (plain and latent) in float64."""

import math

import numpy as np

from ref_basics import rms_norm, sigmoid


def activate(s, g, u):
    if s.situ:
        return s.situ_beta * np.tanh(g / s.situ_beta) * sigmoid(g) * s.situ_linear_beta * np.tanh(u / s.situ_linear_beta)
    return g * sigmoid(g) * u


def mlp(s, w, x, names=("gate_proj", "up_proj", "down_proj")):
    gate, up, down = (w(f"{n}.weight") for n in names)
    return activate(s, x @ gate.T, x @ up.T) @ down.T


def route(s, w, x):
    """(experts [tokens, k] best first, their weights, smallest margin of a choice)."""
    score = sigmoid(x @ w("gate.weight").T)
    choice = score + w("gate.e_score_correction_bias")
    tokens, count = choice.shape
    margin = math.inf
    if s.groups > 1:
        grouped = choice.reshape(tokens, s.groups, count // s.groups)
        value = np.sort(grouped, axis=-1)[..., -2:].sum(axis=-1)
        order = np.argsort(-value, axis=-1, kind="stable")
        ranked = np.take_along_axis(value, order, -1)
        margin = min(margin, (ranked[:, s.topk_group - 1] - ranked[:, s.topk_group]).min())
        kept = np.zeros((tokens, s.groups), dtype=bool)
        np.put_along_axis(kept, order[:, : s.topk_group], True, -1)
        choice = np.where(np.repeat(kept, count // s.groups, axis=-1), choice, -np.inf)
    order = np.argsort(-choice, axis=-1, kind="stable")
    ranked = np.take_along_axis(choice, order, -1)
    margin = min(margin, (ranked[:, : s.topk] - ranked[:, 1 : s.topk + 1]).min())  # the order inside counts too
    experts = order[:, : s.topk]
    weight = np.take_along_axis(score, experts, -1)
    if s.renormalize:
        weight = weight / (weight.sum(axis=-1, keepdims=True) + 1e-20)
    return experts.astype(np.int32), weight * s.scaling_factor, margin


def moe(s, w, x):
    """Returns (output, facts)."""
    experts, weight, margin = route(s, w, x)
    z = x @ w("routed_expert_down_proj.weight").T if s.latent else x
    routed = np.zeros_like(z)
    for e in range(s.experts):
        rows, slots = np.nonzero(experts == e)
        if rows.size:
            y = mlp(s, lambda n, e=e: w(f"experts.{e}.{n}"), z[rows], s.expert_names)
            routed[rows] += weight[rows, slots][:, None] * y
    if s.latent:
        routed = rms_norm(routed, w("routed_expert_norm.weight"), s.eps) if s.latent_norm else routed
        routed = routed @ w("routed_expert_up_proj.weight").T
    shared = mlp(s, lambda n: w(f"shared_experts.{n}"), x)
    return routed + shared, dict(experts=experts, expert_weights=weight, route_margin=margin)
