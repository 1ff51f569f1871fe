"""The whole decoder in float64, for every tiny family."""

from types import SimpleNamespace

import numpy as np

import ref_ffn
from ref_attention import mla
from ref_basics import rms_norm, softmax
from ref_kda import kda


def own_indexer(c, layer):
    """Whether a layer runs an indexer; else it takes the choice of the last layer that did."""
    if "indexer_types" in c:
        return c["indexer_types"][layer] == "full"
    return max(layer - c.get("index_skip_topk_offset", 2) + 1, 0) % c.get("index_topk_freq", 1) == 0


def settings(config):
    """lora_eps is the eps of the norms after q_a and kv_a, unit_eps that of KDA's q and k, index_eps that of the indexer's
    keys: no configuration states them. 1e-6 is what the checkpoints' own code and transformers use."""
    prefix = "language_model." if "text_config" in config else ""
    c = config.get("text_config", config)
    linear = c.get("linear_attn_config")

    def first(*names, default=None):
        return next((c[n] for n in names if n in c), default)

    s = SimpleNamespace(
        prefix=prefix,
        layers=c["num_hidden_layers"],
        eps=c["rms_norm_eps"],
        lora_eps=1e-6,
        unit_eps=1e-6,
        index_eps=1e-6,
        heads=c["num_attention_heads"],
        q_lora=c["q_lora_rank"],
        kv_lora=c["kv_lora_rank"],
        nope_dim=c["qk_nope_head_dim"],
        rope=c["qk_rope_head_dim"],
        v=c["v_head_dim"],
        theta=c["rope_theta"],
        scaling=c.get("rope_scaling"),
        nope=c.get("mla_use_nope", False),
        output_gate=c.get("mla_use_output_gate", False),
        index_heads=c.get("index_n_heads"),
        index_dim=c.get("index_head_dim"),
        index_topk=c.get("index_topk"),
        index_interleaved=c.get("indexer_rope_interleave", False),
        index_kpool=c.get("index_kpool", 1),
        index_own=[own_indexer(c, i) for i in range(c["num_hidden_layers"])],
        experts=first("n_routed_experts", "num_experts"),
        topk=first("num_experts_per_tok", "num_experts_per_token"),
        groups=first("n_group", "num_expert_group"),
        topk_group=c["topk_group"],
        renormalize=first("norm_topk_prob", "moe_renormalize"),
        scaling_factor=c["routed_scaling_factor"],
        dense=c["first_k_dense_replace"],
        latent=c.get("routed_expert_hidden_size"),
        latent_norm=c.get("latent_moe_use_norm", False),
        situ=c["hidden_act"] == "situ",
        situ_beta=c.get("activation_situ_beta"),
        situ_linear_beta=c.get("activation_situ_linear_beta"),
        res_block=c.get("attn_res_block_size"),
        full=None,
        moe_name="mlp",
        expert_names=("gate_proj", "up_proj", "down_proj"),
    )
    if linear:
        s.full = {i - 1 for i in linear["full_attn_layers"]}
        s.kda_heads, s.kda_dim = linear["num_heads"], linear["head_dim"]
        s.gate_lower_bound = linear.get("gate_lower_bound")
        s.full_rank_gate = linear.get("use_full_rank_gate", False)
        s.moe_name, s.expert_names = "block_sparse_moe", ("w1", "w3", "w2")
    return s


def mix(sources, proj, norm, eps):
    """Attention residual: sources [n, tokens, hidden]."""
    logits = np.einsum("nth,h->tn", rms_norm(sources, norm, eps), proj.reshape(-1))
    return np.einsum("tn,nth->th", softmax(logits), sources)


def forward(s, arrays, ids, absorbed=False, chunk=0, dtype=np.float64):
    """Returns facts: logits [tokens, vocab], layers [layers, tokens, hidden] (the residual stream after each layer; with
    attention residuals the prefix), final [tokens, hidden] (input of the head), and what each layer tells."""

    def get(name):
        return arrays[s.prefix + name].astype(dtype)

    p = get("model.embed_tokens.weight")[ids]
    bank, after, told = [], [], []
    for i in range(s.layers):
        base = f"model.layers.{i}."

        def w(name, base=base):
            return get(base + name)

        def attend(x, i=i, w=w):
            def inner(name):
                return w("self_attn." + name)

            if s.full is not None and i not in s.full:
                return kda(s, inner, x, chunk)
            earlier = None if s.index_own[i] or not s.index_topk else next(f for f in reversed(told) if "mask" in f)
            return mla(s, inner, x, absorbed, earlier)

        def feed(x, i=i, w=w):
            if i < s.dense:
                return ref_ffn.mlp(s, lambda n: w("mlp." + n), x), {}
            return ref_ffn.moe(s, lambda n: w(f"{s.moe_name}.{n}"), x)

        def source(site, w=w):
            return mix(
                np.stack(bank + ([] if p is None else [p])), w(f"{site}_proj.weight"), w(f"{site}_norm.weight"), s.eps
            )

        facts = {}
        if s.res_block:
            boundary = i % s.res_block == 0
            if boundary:
                bank.append(p)
                p = None  # moved into the bank: not a source of its own any more
            h = source("self_attention_res")
        else:
            h = p
        a, told_a = attend(rms_norm(h, w("input_layernorm.weight"), s.eps))
        p = a if p is None else p + a
        h = source("mlp_res") if s.res_block else p
        f, told_f = feed(rms_norm(h, w("post_attention_layernorm.weight"), s.eps))
        p = p + f
        facts.update(told_a, **told_f)
        after.append(p)
        told.append(facts)
    h = p
    if s.res_block:
        h = mix(
            np.stack(bank + [p]), get("model.output_attn_res_proj.weight"), get("model.output_attn_res_norm.weight"), s.eps
        )
    final = rms_norm(h, get("model.norm.weight"), s.eps)
    out = SimpleNamespace(logits=final @ get("lm_head.weight").T, layers=np.stack(after), final=final, told=told)
    out.bank = np.stack(bank) if bank else None
    return out
