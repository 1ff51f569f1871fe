"""The tensors of each kind of layer, added to a manifest under their published names."""

VOCAB, HIDDEN, HEADS, DENSE, EXPERT = 256, 128, 4, 192, 64


def mla(m, p, c, gate=False, indexer=None):
    """c: q_lora, kv_lora, nope, rope, v. Inputs of the lora norms and of the index keys' norm are small so that eps shows.

    indexer: heads, dim, lean. A lean (with an embedding that has one too) keeps queries and index keys on one side, or all
    heads' ReLUs are zero so often that the top-k meets ties.
    """
    if c["q_lora"]:
        m.matrix(p + "q_a_proj.weight", c["q_lora"], HIDDEN, 0.06, 0.004 if indexer and indexer[2] else 0)
        m.norm(p + "q_a_layernorm.weight", c["q_lora"])
        m.matrix(p + "q_b_proj.weight", HEADS * (c["nope"] + c["rope"]), c["q_lora"], 1.5)
    else:
        m.matrix(p + "q_proj.weight", HEADS * (c["nope"] + c["rope"]), HIDDEN, 1.5)
    m.add(p + "kv_a_proj_with_mqa.weight", (c["kv_lora"] + c["rope"], HIDDEN), "matrix", 0.03125)
    m.norm(p + "kv_a_layernorm.weight", c["kv_lora"])
    m.matrix(p + "kv_b_proj.weight", HEADS * (c["nope"] + c["v"]), c["kv_lora"])
    if gate:
        m.matrix(p + "g_proj.weight", HEADS * c["v"], HIDDEN)
    m.matrix(p + "o_proj.weight", HIDDEN, HEADS * c["v"])
    if indexer:
        heads, dim, lean = indexer
        m.matrix(p + "indexer.wq_b.weight", heads * dim, c["q_lora"], 1, 0.03 if lean else 0)
        m.matrix(p + "indexer.wk.weight", dim, HIDDEN, 0.1)
        m.norm(p + "indexer.k_norm.weight", dim)
        m.add(p + "indexer.k_norm.bias", (dim,), "bias", 0.25, 0.5 if lean else 0)
        m.matrix(p + "indexer.weights_proj.weight", heads, HIDDEN)


def mlp(m, p, inter, hidden=HIDDEN, names=("gate_proj", "up_proj", "down_proj"), gain=1.0, out=1.0):
    gate, up, down = names
    m.matrix(f"{p}{gate}.weight", inter, hidden, 1.5 * gain)
    m.matrix(f"{p}{up}.weight", inter, hidden, 1.5 * gain)
    m.matrix(f"{p}{down}.weight", hidden, inter, out)


def moe(m, p, experts, shared, names=("gate_proj", "up_proj", "down_proj"), latent=0, gain=1.0):
    m.matrix(p + "gate.weight", experts, HIDDEN, 1.2)
    m.add(p + "gate.e_score_correction_bias", (experts,), "bias", 0.125)
    if latent:
        m.matrix(p + "routed_expert_down_proj.weight", latent, HIDDEN)
        m.norm(p + "routed_expert_norm.weight", latent)
        m.matrix(p + "routed_expert_up_proj.weight", HIDDEN, latent)
    for e in range(experts):
        # small before the latent norm, or the norm hides whether the weights were renormalised
        mlp(m, f"{p}experts.{e}.", EXPERT, latent or HIDDEN, names, gain, 0.004 if latent else 1)
    mlp(m, p + "shared_experts.", EXPERT * shared, gain=gain)


def kda(m, p, heads, dim, conv, bounded, a_log_shape):
    size = heads * dim
    for x in "qkv":
        m.matrix(f"{p}{x}_proj.weight", size, HIDDEN, 1 if x == "v" else 0.08)
        m.add(f"{p}{x}_conv1d.weight", (size, 1, conv), "conv", 0.875)
    # exp(A_log) in 0.6..1.6 (bounded) or 0.14..0.6, dt_bias so that a step keeps roughly 0.6..0.98 of a channel
    m.add(p + "A_log", a_log_shape, "a_log", 0.5 if bounded else 0.75, 0.0 if bounded else -1.25)
    m.add(p + "dt_bias", (size,), "bias", 1.0, -2.5 if bounded else -0.5)
    m.matrix(p + "f_a_proj.weight", dim, HIDDEN)
    m.matrix(p + "f_b_proj.weight", size, dim)
    m.matrix(p + "b_proj.weight", heads, HIDDEN, 1.5)
    if bounded:
        m.matrix(p + "g_proj.weight", size, HIDDEN)
    else:
        m.matrix(p + "g_a_proj.weight", dim, HIDDEN)
        m.matrix(p + "g_b_proj.weight", size, dim)
    m.norm(p + "o_norm.weight", dim)
    m.matrix(p + "o_proj.weight", HIDDEN, size)


def ends(m, p, head="lm_head.weight", lean=0.0):
    m.add(p + "embed_tokens.weight", (VOCAB, HIDDEN), "embedding", 1.0, lean)
    m.norm(p + "norm.weight", HIDDEN)
    m.matrix(head, VOCAB, HIDDEN, 2.0)


def layer_norms(m, p):
    m.norm(p + "input_layernorm.weight", HIDDEN)
    m.norm(p + "post_attention_layernorm.weight", HIDDEN)
