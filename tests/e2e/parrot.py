"""A checkpoint that says one thing: a Llama whose every answer is a fixed row of tokens, whatever it is asked.

Its attention and its MLP add nothing, so what it predicts depends on the last token alone. Every token of the row is a
token of its own in the vocabulary (of any text), lies on its own axis, and its successor's row of the output matrix on
the same axis. All other tokens share the first axis, which leads to the row's first token; the last one leads to the
end token. Standard library only.
"""
import json
import pathlib
import struct

TINY = pathlib.Path(__file__).resolve().parent.parent / "data/tiny_llama"
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 64, 4, 2, 16, 32
LOUD = 8.0  # exact in bf16; a logit of 8 * 8 leaves nothing to chance


def _rows(values, columns):
    """bf16 bytes of a matrix that is zero but for `values`, {row: (column, value)}."""
    count, entries = values
    data = bytearray(count * columns * 2)
    for row, (column, value) in entries.items():
        data[(row * columns + column) * 2:(row * columns + column) * 2 + 2] = struct.pack("<f", value)[2:]
    return [count, columns], bytes(data)


def write(folder, pieces, special=()):
    """`pieces`: the answer, token by token; each must be a text of its own. `special`: those that are special tokens."""
    assert len(set(pieces)) == len(pieces) < HIDDEN, "every piece is one token"
    folder = pathlib.Path(folder)
    tokenizer = json.loads((TINY / "tokenizer.json").read_text())
    base = max([token["id"] for token in tokenizer["added_tokens"]] + list(tokenizer["model"]["vocab"].values())) + 1
    end = next(token["id"] for token in tokenizer["added_tokens"] if token["content"] == "<|im_end|>")
    for i, piece in enumerate(pieces):
        tokenizer["added_tokens"].append({"id": base + i, "content": piece, "single_word": False, "lstrip": False,
                                          "rstrip": False, "normalized": False, "special": piece in special})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    for name in ("tokenizer_config.json", "generation_config.json"):
        (folder / name).write_bytes((TINY / name).read_bytes())
    vocab = base + len(pieces)
    config = json.loads((TINY / "config.json").read_text())
    config.update(hidden_size=HIDDEN, intermediate_size=INTERMEDIATE, num_hidden_layers=1, num_attention_heads=HEADS,
                  num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, vocab_size=vocab, tie_word_embeddings=False)
    (folder / "config.json").write_text(json.dumps(config))

    embedding = {token: (0, 1.0) for token in range(base)}
    embedding.update({base + i: (i + 1, 1.0) for i in range(len(pieces))})
    output = {base + i: (i, LOUD) for i in range(len(pieces))}
    output[end] = (len(pieces), LOUD)
    layer = "model.layers.0."
    tensors = {
        "model.embed_tokens.weight": _rows((vocab, embedding), HIDDEN),
        "lm_head.weight": _rows((vocab, output), HIDDEN),
        layer + "self_attn.q_proj.weight": _rows((HEADS * HEAD_DIM, {}), HIDDEN),
        layer + "self_attn.k_proj.weight": _rows((KV_HEADS * HEAD_DIM, {}), HIDDEN),
        layer + "self_attn.v_proj.weight": _rows((KV_HEADS * HEAD_DIM, {}), HIDDEN),
        layer + "self_attn.o_proj.weight": _rows((HIDDEN, {}), HEADS * HEAD_DIM),
        layer + "mlp.gate_proj.weight": _rows((INTERMEDIATE, {}), HIDDEN),
        layer + "mlp.up_proj.weight": _rows((INTERMEDIATE, {}), HIDDEN),
        layer + "mlp.down_proj.weight": _rows((HIDDEN, {}), INTERMEDIATE),
    }
    ones = struct.pack("<f", 1.0)[2:] * HIDDEN
    for name in ("model.norm", layer + "input_layernorm", layer + "post_attention_layernorm"):
        tensors[name + ".weight"] = ([HIDDEN], ones)
    header, at = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for _, data in tensors.values():
            file.write(data)
    return str(folder)
