#!/usr/bin/env python3
"""Writes config.json and manifest.json of every tiny family: python manifests.py

Keys, tensor names and layouts are the published ones; the sizes are small but keep every branch alive.
"""

from layer_tensors import DENSE, EXPERT, HEADS, HIDDEN, VOCAB, ends, kda, layer_norms, mla, mlp, moe
from ref_model import own_indexer
from tiny import Manifest

DEEPSEEK = dict(
    hidden_act="silu",
    hidden_size=HIDDEN,
    intermediate_size=DENSE,
    num_attention_heads=HEADS,
    num_key_value_heads=HEADS,
    vocab_size=VOCAB,
    q_lora_rank=48,
    kv_lora_rank=64,
    qk_nope_head_dim=32,
    qk_rope_head_dim=16,
    v_head_dim=32,
    n_routed_experts=8,
    num_experts_per_tok=3,
    n_shared_experts=1,
    moe_intermediate_size=EXPERT,
    moe_layer_freq=1,
    n_group=4,
    topk_group=2,
    scoring_func="sigmoid",
    topk_method="noaux_tc",
    norm_topk_prob=True,
    routed_scaling_factor=2.5,
    first_k_dense_replace=1,
    num_nextn_predict_layers=0,
    rms_norm_eps=1e-6,
    rope_theta=10000.0,
    attention_bias=False,
    max_position_embeddings=512,
    tie_word_embeddings=False,
    bos_token_id=0,
    eos_token_id=1,
    torch_dtype="float32",
)


def yarn(factor, original, mscale, mscale_all_dim):
    return dict(
        type="yarn",
        factor=factor,
        original_max_position_embeddings=original,
        beta_fast=32,
        beta_slow=1,
        mscale=mscale,
        mscale_all_dim=mscale_all_dim,
    )


def deepseek_layers(m, prefix, config, indexer=None):
    c = dict(
        q_lora=config["q_lora_rank"],
        kv_lora=config["kv_lora_rank"],
        nope=config["qk_nope_head_dim"],
        rope=config["qk_rope_head_dim"],
        v=config["v_head_dim"],
    )
    for i in range(config["num_hidden_layers"]):
        p = f"{prefix}layers.{i}."
        layer_norms(m, p)
        mla(m, p + "self_attn.", c, indexer=indexer if indexer and own_indexer(config, i) else None)
        if i < config["first_k_dense_replace"]:
            mlp(m, p + "mlp.", DENSE)
        else:
            moe(m, p + "mlp.", config["n_routed_experts"], config["n_shared_experts"])


def deepseek_v3():
    config = dict(
        architectures=["DeepseekV3ForCausalLM"],
        model_type="deepseek_v3",
        **DEEPSEEK,
        num_hidden_layers=4,
        rope_scaling=yarn(8, 64, 1.0, 1.0),
    )
    m = Manifest()
    ends(m, "model.")
    deepseek_layers(m, "model.", config)
    m.write("deepseek_v3", config)


def deepseek_v32(family="deepseek_v32", **options):
    # llama.cpp's indexer wants a head of a multiple of 64, half of it rotated
    config = dict(
        architectures=["DeepseekV32ForCausalLM"],
        model_type="deepseek_v32",
        **dict(DEEPSEEK, qk_rope_head_dim=32),
        num_hidden_layers=4,
        rope_scaling=yarn(8, 64, 1.0, 1.0),
        index_n_heads=4,
        index_head_dim=64,
        index_topk=8,
        **options,
    )
    m = Manifest()
    ends(m, "model.", lean=0.375)
    deepseek_layers(m, "model.", config, indexer=(4, 64, True))
    m.write(family, config)


def kimi_k25():
    text = dict(
        DEEPSEEK,
        architectures=["DeepseekV3ForCausalLM"],
        model_type="kimi_k2",
        num_hidden_layers=4,
        n_group=1,
        topk_group=1,
        num_experts_per_tok=3,
        routed_scaling_factor=2.827,
        rms_norm_eps=1e-5,
        rope_theta=50000.0,
        qk_nope_head_dim=48,
        rope_scaling=yarn(16, 32, 1.0, 0.5),
    )
    config = dict(
        architectures=["KimiK25ForConditionalGeneration"],
        model_type="kimi_k25",
        text_config=text,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        media_placeholder_token_id=3,
        torch_dtype="float32",
    )
    m = Manifest()
    ends(m, "language_model.model.", head="language_model.lm_head.weight")
    deepseek_layers(m, "language_model.model.", text)
    m.write("kimi_k25", config)


KIMI = dict(
    model_type="kimi_linear",
    hidden_size=HIDDEN,
    intermediate_size=DENSE,
    num_attention_heads=HEADS,
    num_key_value_heads=HEADS,
    vocab_size=VOCAB,
    kv_lora_rank=64,
    qk_nope_head_dim=32,
    qk_rope_head_dim=16,
    v_head_dim=32,
    mla_use_nope=True,
    num_experts=8,
    moe_intermediate_size=EXPERT,
    moe_layer_freq=1,
    moe_renormalize=True,
    moe_router_activation_func="sigmoid",
    num_expert_group=1,
    topk_group=1,
    use_grouped_topk=True,
    first_k_dense_replace=1,
    num_nextn_predict_layers=0,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    rope_scaling=None,
    tie_word_embeddings=False,
    bos_token_id=0,
    eos_token_id=1,
    torch_dtype="float32",
)
EXPERT_NAMES = ("w1", "w3", "w2")


def linear_attention(layers, full):
    return dict(
        full_attn_layers=full,
        kda_layers=[i for i in range(1, layers + 1) if i not in full],
        head_dim=32,
        num_heads=HEADS,
        short_conv_kernel_size=4,
    )


def kimi_layers(m, prefix, config, k3, indexer=None):
    c = dict(q_lora=config["q_lora_rank"], kv_lora=64, nope=32, rope=16, v=config["v_head_dim"])
    for i in range(config["num_hidden_layers"]):
        p = f"{prefix}layers.{i}."
        layer_norms(m, p)
        if k3:
            for site in ("self_attention_res", "mlp_res"):
                m.matrix(f"{p}{site}_proj.weight", 1, HIDDEN)
                m.norm(f"{p}{site}_norm.weight", HIDDEN)
        if i + 1 in config["linear_attn_config"]["full_attn_layers"]:
            mla(m, p + "self_attn.", c, gate=k3, indexer=indexer)
        else:
            kda(m, p + "self_attn.", HEADS, 32, 4, k3, (8,) if k3 else (1, 1, HEADS, 1))
        if i < config["first_k_dense_replace"]:
            mlp(m, p + "mlp.", DENSE, gain=1.5 if k3 else 1)
        else:
            moe(
                m,
                p + "block_sparse_moe.",
                8,
                config["num_shared_experts"],
                EXPERT_NAMES,
                config.get("routed_expert_hidden_size", 0),
                gain=1.5 if k3 else 1,
            )


def kimi_linear():
    config = dict(
        architectures=["KimiLinearForCausalLM"],
        **KIMI,
        num_hidden_layers=7,
        hidden_act="silu",
        q_lora_rank=None,
        head_dim=32,
        num_experts_per_token=2,
        num_shared_experts=1,
        routed_scaling_factor=2.446,
        pad_token_id=2,
        linear_attn_config=linear_attention(7, [4, 7]),
    )
    m = Manifest()
    ends(m, "model.")
    kimi_layers(m, "model.", config, k3=False)
    m.write("kimi_linear", config)


def kimi_k3(family="kimi_k3", indexer=None):
    text = dict(
        architectures=["KimiLinearForCausalLM"],
        **KIMI,
        num_hidden_layers=9,
        hidden_act="situ",
        activation_situ_beta=4.0,
        activation_situ_linear_beta=25.0,
        q_lora_rank=48,
        mla_use_output_gate=True,
        attn_res_block_size=3,
        num_experts_per_token=3,
        num_shared_experts=2,
        routed_expert_hidden_size=64,
        latent_moe_use_norm=True,
        topk_method="noaux_tc",
        routed_scaling_factor=1.0,
        linear_attn_config=dict(linear_attention(9, [4, 8, 9]), use_full_rank_gate=True, gate_lower_bound=-5.0),
    )
    if indexer:
        text.update(index_n_heads=indexer[0], index_head_dim=indexer[1], index_topk=8)
    config = dict(
        architectures=["KimiK3ForConditionalGeneration"],
        model_type="kimi_k3",
        text_config=text,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        media_placeholder_token_id=3,
        torch_dtype="float32",
    )
    m = Manifest()
    p = "language_model.model."
    ends(m, p, head="language_model.lm_head.weight")
    m.matrix(p + "output_attn_res_proj.weight", 1, HIDDEN)
    m.norm(p + "output_attn_res_norm.weight", HIDDEN)
    kimi_layers(m, p, text, k3=True, indexer=indexer)
    m.write(family, config)


def main():
    deepseek_v3()
    deepseek_v32()
    deepseek_v32("deepseek_v32_options", indexer_rope_interleave=True, index_topk_freq=2)
    kimi_k25()
    kimi_linear()
    kimi_k3()
    kimi_k3("kimi_k31", indexer=(4, 32, False))


if __name__ == "__main__":
    main()
