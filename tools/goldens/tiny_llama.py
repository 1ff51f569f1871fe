#!/usr/bin/env python3
"""Makes tests/data/tiny_llama: a random Llama checkpoint of 0.3 MB in Hugging Face layout, for tests and for the demo
where no package index can be reached. Needs PyPI numpy, safetensors and tokenizers.

  tools/goldens/tiny_llama.py

The tokenizer is a byte-level BPE of 512 entries, trained on alice.txt. The weights are random (fixed seed): the answers
are noise.
"""
import json
import pathlib

import numpy as np
import safetensors.numpy
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE.parent.parent / "tests/data/tiny_llama"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 160,
    "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512,
    "rms_norm_eps": 1e-5, "rope_theta": 100000.0, "max_position_embeddings": 8192, "tie_word_embeddings": True,
    "attention_bias": False, "hidden_act": "silu", "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
}
TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' "
            "+ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def bf16(array):
    """float32 to bfloat16 bits, nearest even."""
    bits = array.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def save_bf16(tensors, path):
    header, offset, blobs = {}, 0, []
    for name, array in tensors.items():
        blob = bf16(array).tobytes()
        header[name] = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": [offset, offset + len(blob)]}
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))
    assert set(safetensors.safe_open(path, "np").keys()) == set(tensors)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=CONFIG["vocab_size"], special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train([str(HERE / "alice.txt")], trainer)
    assert tokenizer.get_vocab_size() == CONFIG["vocab_size"]
    tokenizer.save(str(OUT / "tokenizer.json"), pretty=False)

    rng = np.random.default_rng(42)
    hidden, inter, head = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["head_dim"]
    heads, kv_heads = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"]
    normal = lambda out, inp, gain=1.0: rng.standard_normal((out, inp)) * gain / np.sqrt(inp)
    tensors = {"model.embed_tokens.weight": rng.standard_normal((CONFIG["vocab_size"], hidden)) * 0.35,
               "model.norm.weight": 1 + 0.1 * rng.standard_normal(hidden)}
    for i in range(CONFIG["num_hidden_layers"]):
        prefix = f"model.layers.{i}."
        tensors |= {
            prefix + "input_layernorm.weight": 1 + 0.1 * rng.standard_normal(hidden),
            prefix + "post_attention_layernorm.weight": 1 + 0.1 * rng.standard_normal(hidden),
            prefix + "self_attn.q_proj.weight": normal(heads * head, hidden, 2.0),
            prefix + "self_attn.k_proj.weight": normal(kv_heads * head, hidden, 2.0),
            prefix + "self_attn.v_proj.weight": normal(kv_heads * head, hidden),
            prefix + "self_attn.o_proj.weight": normal(hidden, heads * head),
            prefix + "mlp.gate_proj.weight": normal(inter, hidden),
            prefix + "mlp.up_proj.weight": normal(inter, hidden),
            prefix + "mlp.down_proj.weight": normal(hidden, inter),
        }
    save_bf16(tensors, OUT / "model.safetensors")
    (OUT / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    (OUT / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}) + "\n")
    (OUT / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "chat_template": TEMPLATE,
         "clean_up_tokenization_spaces": False, "tokenizer_class": "PreTrainedTokenizerFast"}, indent=2) + "\n")


if __name__ == "__main__":
    main()
