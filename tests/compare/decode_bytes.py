"""What one decode step must read of a checkpoint's weights, from the headers of its safetensors files alone."""
import json
import pathlib
import re
import struct

EXPERT = re.compile(r"\.experts\.\d+\.")
LAYER = re.compile(r"\.layers\.(\d+)\.")
UNREAD = ("embed_tokens", "vision_tower", "mm_projector")  # a step reads one row of the embedding


def tensor_bytes(folder):
    """{tensor name: bytes in the file}."""
    sizes = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with path.open("rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                sizes[name] = end - begin
    return sizes


def decode_bytes(sizes, config, batch=1):
    """(bytes outside the routed experts, bytes of routed experts) that a step of `batch` rows reads. Rows choose
    top-k of the experts each by itself: with random weights a layer's `batch` choices hit E (1 - (1 - k/E)^batch) of
    its E experts on average."""
    text = config.get("text_config", config)
    experts, top_k, layers = text["num_experts"], text["num_experts_per_token"], text["num_hidden_layers"]
    other, routed = 0, 0
    for name, size in sizes.items():
        layer = LAYER.search(name)
        if any(word in name for word in UNREAD) or (layer and int(layer.group(1)) >= layers):
            continue
        if EXPERT.search(name):
            routed += size
        else:
            other += size
    return other, round(routed * (1 - (1 - top_k / experts) ** batch))


def cache_bytes(config, quantised):
    """KV of one token: per full-attention layer a latent with its shared key dimensions and an index key. bf16; or one
    byte an element with an fp32 scale per 128 of the latent and one per index key, the shared dimensions in bf16."""
    text = config["text_config"]
    rank, shared, key = text["kv_lora_rank"], text["qk_rope_head_dim"], text["index_head_dim"]
    layers = len(text["linear_attn_config"]["full_attn_layers"])
    return layers * (rank + 4 * rank // 128 + 2 * shared + key + 4 if quantised else 2 * (rank + shared + key))


def state_bytes(config):
    """Recurrent state of one sequence: fp32, per KDA layer a key x value matrix per head and the windows of the three
    convolutions."""
    linear = config["text_config"]["linear_attn_config"]
    width = linear["num_heads"] * linear["head_dim"]
    window = 3 * width * (linear["short_conv_kernel_size"] - 1)
    return len(linear["kda_layers"]) * 4 * (width * linear["head_dim"] + window)
