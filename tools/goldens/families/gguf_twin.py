#!/usr/bin/env python3
"""Describes the GGUF twin of each tiny checkpoint, with the metadata keys and tensor names of llama.cpp's converter:

    python gguf_twin.py             writes <family>/gguf.json
    python gguf_twin.py FAMILY OUT  writes the GGUF file itself (needs PyPI gguf)

gguf.json: `metadata` (key, GGUF type, value) and `tensors` (name, shape outermost first, `from` = published names, `op`):
copy, reshape; stack (experts on a new first axis); k_b and v_b (rows of kv_b_proj per head, k_b transposed to
[head, kv_lora, nope]); product (elementwise, flattened); neg_exp (-exp of the first `shape` elements).
"""

import json
import sys

import numpy as np

from ref_model import settings
from tiny import ROOT, load

ARCH = {
    "deepseek_v3": "deepseek2",
    "deepseek_v32": "deepseek32",
    "kimi_k25": "deepseek2",
    "kimi_linear": "kimi-linear",
    "kimi_k3": "kimi-k3",
}
SIGMOID = 2  # expert_gating_func


class Twin:
    def __init__(self, family):
        self.config, self.arrays = load(family)
        self.c = self.config.get("text_config", self.config)
        self.s = settings(self.config)
        self.arch = ARCH[family]
        self.metadata, self.tensors = [], []
        self.meta("general.architecture", "string", self.arch)
        self.meta("general.name", "string", f"tiny {family}")
        self.meta("tokenizer.ggml.model", "string", "none")
        self.describe_model()
        self.describe_tensors()

    def meta(self, key, kind, value):
        self.metadata.append(dict(key=key, type=kind, value=value))

    def own(self, key, value, kind=None):
        kinds = {bool: "bool", int: "uint32", float: "float32", str: "string"}
        self.meta(f"{self.arch}.{key}", kind or kinds[type(value)], value)

    def describe_model(self):
        c, s = self.c, self.s
        full = [i for i in range(s.layers) if s.full is None or i in s.full]
        for key, value in [
            ("block_count", s.layers),
            ("context_length", 512),
            ("embedding_length", c["hidden_size"]),
            ("feed_forward_length", c["intermediate_size"]),
            ("attention.head_count", s.heads),
            ("vocab_size", c["vocab_size"]),
            ("rope.dimension_count", s.rope),
            ("attention.kv_lora_rank", s.kv_lora),
            ("attention.key_length", s.kv_lora + s.rope),
            ("attention.value_length", s.kv_lora),
            ("attention.key_length_mla", s.nope_dim + s.rope),
            ("attention.value_length_mla", s.v),
            ("attention.layer_norm_rms_epsilon", s.eps),
            ("rope.freq_base", float(s.theta)),
            ("leading_dense_block_count", s.dense),
            ("expert_count", s.experts),
            ("expert_used_count", s.topk),
            ("expert_shared_count", c.get("n_shared_experts", c.get("num_shared_experts"))),
            ("expert_feed_forward_length", c["moe_intermediate_size"]),
            ("expert_weights_scale", float(s.scaling_factor)),
            ("expert_weights_norm", bool(s.renormalize)),
            ("expert_gating_func", SIGMOID),
        ]:
            self.own(key, value)
        if s.q_lora:
            self.own("attention.q_lora_rank", s.q_lora)
        if s.groups > 1:
            self.own("expert_group_count", s.groups)
            self.own("expert_group_used_count", s.topk_group)
        if s.full is None:
            self.own("attention.head_count_kv", 1)
        else:
            self.own("attention.head_count_kv", [1 if i in full else 0 for i in range(s.layers)], "array of int32")
            self.own("ssm.conv_kernel", c["linear_attn_config"]["short_conv_kernel_size"])
            self.own("kda.head_dim", s.kda_dim)
            if s.gate_lower_bound is not None:
                self.own("kda.gate_lower_bound", s.gate_lower_bound)
        if s.scaling:
            self.own("rope.scaling.type", "yarn")
            self.own("rope.scaling.factor", float(s.scaling["factor"]))
            self.own("rope.scaling.original_context_length", s.scaling["original_max_position_embeddings"])
            self.own("rope.scaling.yarn_beta_fast", float(s.scaling["beta_fast"]))
            self.own("rope.scaling.yarn_beta_slow", float(s.scaling["beta_slow"]))
            self.own("rope.scaling.yarn_log_multiplier", 0.1 * s.scaling["mscale_all_dim"])
        if s.index_topk:
            self.own("attention.indexer.head_count", s.index_heads)
            self.own("attention.indexer.key_length", s.index_dim)
            self.own("attention.indexer.top_k", s.index_topk)
        if s.latent:
            self.own("expert_latent_length", s.latent)
        if s.situ:
            self.own("activation.situ_beta", s.situ_beta)
            self.own("activation.situ_linear_beta", s.situ_linear_beta)
        if s.res_block:
            self.own("attn_res.block_size", s.res_block)

    def add(self, name, sources, op="copy", shape=None):
        sources = [self.s.prefix + n for n in ([sources] if isinstance(sources, str) else sources)]
        self.tensors.append({"name": name, "shape": list(shape or self.arrays[sources[0]].shape), "from": sources, "op": op})

    def describe_tensors(self):
        s = self.s
        self.add("token_embd.weight", "model.embed_tokens.weight")
        self.add("output_norm.weight", "model.norm.weight")
        self.add("output.weight", "lm_head.weight")
        hidden = self.c["hidden_size"]
        if s.res_block:
            self.score("output_res_score", "model.output_attn_res", hidden)
        for i in range(s.layers):
            hf, gg = f"model.layers.{i}.", f"blk.{i}."
            self.add(gg + "attn_norm.weight", hf + "input_layernorm.weight")
            self.add(gg + "ffn_norm.weight", hf + "post_attention_layernorm.weight")
            if s.res_block:
                self.score(gg + "attn_res_score", hf + "self_attention_res", hidden)
                self.score(gg + "ffn_res_score", hf + "mlp_res", hidden)
            is_full = s.full is None or i in s.full
            (self.mla if is_full else self.kda)(gg, hf + "self_attn.")
            if i < s.dense:
                self.mlp(gg, "", hf + "mlp.")
            else:
                self.moe(gg, f"{hf}{s.moe_name}.")

    def score(self, name, base, hidden):
        self.add(name + ".weight", [base + "_norm.weight", base + "_proj.weight"], "product", [hidden])

    def mla(self, gg, hf):
        s = self.s
        names = dict(attn_kv_a_mqa="kv_a_proj_with_mqa", attn_kv_a_norm="kv_a_layernorm", attn_output="o_proj")
        names.update(
            dict(attn_q_a="q_a_proj", attn_q_a_norm="q_a_layernorm", attn_q_b="q_b_proj")
            if s.q_lora
            else dict(attn_q="q_proj")
        )
        if s.output_gate:
            names["attn_gate"] = "g_proj"
        if s.index_topk:
            names.update(
                {
                    "indexer.attn_q_b": "indexer.wq_b",
                    "indexer.attn_k": "indexer.wk",
                    "indexer.proj": "indexer.weights_proj",
                    "indexer.k_norm": "indexer.k_norm",
                }
            )
            self.add(gg + "indexer.k_norm.bias", hf + "indexer.k_norm.bias")
        for name, source in names.items():
            self.add(f"{gg}{name}.weight", f"{hf}{source}.weight")
        self.add(gg + "attn_k_b.weight", hf + "kv_b_proj.weight", "k_b", [s.heads, s.kv_lora, s.nope_dim])
        self.add(gg + "attn_v_b.weight", hf + "kv_b_proj.weight", "v_b", [s.heads, s.v, s.kv_lora])

    def kda(self, gg, hf):
        s = self.s
        gate = dict(ssm_g="g_proj") if s.full_rank_gate else dict(ssm_g_a="g_a_proj", ssm_g_b="g_b_proj")
        for name, source in dict(
            attn_q="q_proj",
            attn_k="k_proj",
            attn_v="v_proj",
            ssm_f_a="f_a_proj",
            ssm_f_b="f_b_proj",
            ssm_beta="b_proj",
            ssm_norm="o_norm",
            attn_output="o_proj",
            **gate,
        ).items():
            self.add(f"{gg}{name}.weight", f"{hf}{source}.weight")
        for c in "qkv":
            source = f"{hf}{c}_conv1d.weight"
            size, _, width = self.arrays[s.prefix + source].shape
            self.add(f"{gg}ssm_conv1d_{c}.weight", source, "reshape", [1, size, 1, width])
        bounded = s.gate_lower_bound is not None
        self.add(gg + "ssm_a", hf + "A_log", "neg_exp", [s.kda_heads] if bounded else [1, 1, s.kda_heads, 1])
        self.add(gg + "ssm_dt.bias", hf + "dt_bias")

    def mlp(self, gg, suffix, hf):
        for n in ("gate", "up", "down"):
            self.add(f"{gg}ffn_{n}{suffix}.weight", f"{hf}{n}_proj.weight")

    def moe(self, gg, hf):
        s = self.s
        self.add(gg + "ffn_gate_inp.weight", hf + "gate.weight")
        self.add(gg + "exp_probs_b.bias", hf + "gate.e_score_correction_bias")
        for n, source in zip(("gate", "up", "down"), s.expert_names):
            sources = [f"{hf}experts.{e}.{source}.weight" for e in range(s.experts)]
            self.add(f"{gg}ffn_{n}_exps.weight", sources, "stack", [s.experts, *self.arrays[s.prefix + sources[0]].shape])
        if s.latent:
            for n in ("down", "norm", "up"):
                source = "norm" if n == "norm" else f"{n}_proj"
                self.add(f"{gg}ffn_routed_{n}.weight", f"{hf}routed_expert_{source}.weight")
        self.mlp(gg, "_shexp", hf + "shared_experts.")

    def values(self, tensor):
        parts = [self.arrays[n] for n in tensor["from"]]
        op, s = tensor["op"], self.s
        if op == "stack":
            out = np.stack(parts)
        elif op in ("k_b", "v_b"):
            rows = parts[0].reshape(s.heads, s.nope_dim + s.v, s.kv_lora)
            out = rows[:, : s.nope_dim].transpose(0, 2, 1) if op == "k_b" else rows[:, s.nope_dim :]
        elif op == "product":
            out = parts[0].reshape(-1) * parts[1].reshape(-1)
        elif op == "neg_exp":
            out = -np.exp(parts[0].reshape(-1)[: s.kda_heads].astype(np.float64)).astype(np.float32)
        else:
            out = parts[0]
        return np.ascontiguousarray(out.reshape(tensor["shape"]), dtype=np.float32)

    def write_json(self, path):
        lines = [",\n  ".join(json.dumps(x) for x in part) for part in (self.metadata, self.tensors)]
        path.write_text('{"metadata": [\n  ' + lines[0] + '\n], "tensors": [\n  ' + lines[1] + "\n]}\n")

    def write_gguf(self, path):
        import gguf

        kinds = {
            "string": gguf.GGUFValueType.STRING,
            "uint32": gguf.GGUFValueType.UINT32,
            "bool": gguf.GGUFValueType.BOOL,
            "float32": gguf.GGUFValueType.FLOAT32,
            "array of int32": gguf.GGUFValueType.ARRAY,
        }
        writer = gguf.GGUFWriter(path, self.arch)
        for m in self.metadata[1:]:  # the writer adds general.architecture itself
            array = m["type"].startswith("array")
            writer.add_key_value(m["key"], m["value"], kinds[m["type"]], gguf.GGUFValueType.INT32 if array else None)
        for t in self.tensors:
            writer.add_tensor(t["name"], self.values(t))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        Twin(sys.argv[1]).write_gguf(sys.argv[2])
    else:
        for name in ARCH:
            Twin(name).write_json(ROOT / name / "gguf.json")
