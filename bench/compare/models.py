"""The files that a comparison runs on, made once into a folder.

SmolLM2-135M in each format comes from the Q4_1 file of tools/get_smollm2.sh by llama.cpp's own quantiser; its
embedding table, which is also the output matrix, stays Q8_0 as it is there (bf16: all bf16). The 1.2B shape is Llama 3.2
1B's with the published file's tokens replaced by numbers: values are random, since speed does not depend on them."""
import pathlib
import subprocess

import numpy
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, TokenType
from gguf.quants import quantize

SMOLLM2_FORMATS = ("q4_1", "q4_0", "q8_0", "bf16")
SHAPE_1B = {"layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8, "feed_forward": 8192, "vocab": 128256}


def smollm2(folder, published, llama_side, form):
    """The GGUF file of SmolLM2-135M in `form`."""
    if form == "q4_1":
        return pathlib.Path(published)
    path = pathlib.Path(folder) / f"SmolLM2-135M-Instruct.{form}.gguf"
    if not path.exists():
        unfinished = path.with_suffix(".part")
        subprocess.run([llama_side, "--quantize", published, unfinished, form], check=True, stdout=subprocess.DEVNULL)
        unfinished.rename(path)
    return path


def llama_1b(folder, form):
    """A GGUF file of Llama 3.2 1B's shape (1.24 billion weights), all matrices in `form`."""
    path = pathlib.Path(folder) / f"llama-1b-shape.{form}.gguf"
    if path.exists():
        return path
    shape, kind = SHAPE_1B, GGMLQuantizationType[form.upper()]
    unfinished = path.with_suffix(".part")
    writer = GGUFWriter(unfinished, "llama")
    writer.add_block_count(shape["layers"])
    writer.add_context_length(8192)
    writer.add_embedding_length(shape["hidden"])
    writer.add_feed_forward_length(shape["feed_forward"])
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["kv_heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape["hidden"] // shape["heads"])
    writer.add_rope_freq_base(500000.0)
    writer.add_vocab_size(shape["vocab"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{i}" for i in range(shape["vocab"])])
    writer.add_token_types([TokenType.NORMAL] * shape["vocab"])
    writer.add_token_merges(["t 0"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)

    # A block of 2 million values, repeated: making and quantising a billion takes minutes.
    block = numpy.random.default_rng(1).normal(0, 0.02, size=(1024, shape["hidden"])).astype(numpy.float32)

    def matrix(name, outputs, inputs):
        rows = quantize(block.reshape(-1, inputs), kind)
        writer.add_tensor(name, numpy.resize(rows, (outputs, rows.shape[1])), raw_dtype=kind)

    def norm(name):
        writer.add_tensor(name, numpy.ones(shape["hidden"], dtype=numpy.float32))

    hidden, kv = shape["hidden"], shape["hidden"] // shape["heads"] * shape["kv_heads"]
    matrix("token_embd.weight", shape["vocab"], hidden)
    norm("output_norm.weight")
    for i in range(shape["layers"]):
        norm(f"blk.{i}.attn_norm.weight")
        matrix(f"blk.{i}.attn_q.weight", hidden, hidden)
        matrix(f"blk.{i}.attn_k.weight", kv, hidden)
        matrix(f"blk.{i}.attn_v.weight", kv, hidden)
        matrix(f"blk.{i}.attn_output.weight", hidden, hidden)
        norm(f"blk.{i}.ffn_norm.weight")
        matrix(f"blk.{i}.ffn_gate.weight", shape["feed_forward"], hidden)
        matrix(f"blk.{i}.ffn_up.weight", shape["feed_forward"], hidden)
        matrix(f"blk.{i}.ffn_down.weight", hidden, shape["feed_forward"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.rename(path)
    return path


def tensor_bytes(path):
    """Bytes of the file's tensors: about what one decode step reads."""
    return sum(int(tensor.n_bytes) for tensor in GGUFReader(path).tensors)
