#!/usr/bin/env python3
"""Golden folders of the published forms of a quantised weight matrix, made by other hands than ours.

    PYTHONDONTWRITEBYTECODE=1 python3 tools/goldens/weight_forms.py src/weights/testdata/weight_forms

Needs PyPI torch, safetensors and compressed-tensors. Made with torch 2.15.0, safetensors 0.8.0, compressed-tensors
0.20.1.
  int4, mxfp4   packed by compressed_tensors' own compressors (PackedQuantizationCompressor, MXFP4PackedCompressor) with
                scales by its calculate_qparams; expected values by their decompress
  fp8           e4m3 by torch.float8_e4m3fn's cast; expected values by torch in fp32
  modelslim     from the description of the format (no package writes it): codes drawn, packed and expected with torch
Each folder is a checkpoint: config.json, model.safetensors (written by safetensors itself). For each matrix BASE the
file also holds BASE.expected, fp32: the rows of BASE.rows (i64), or all; and where the packer quantised, BASE.input.
"""
import json
import pathlib
import sys

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationScheme, preset_name_to_scheme
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import save_file

OUT = pathlib.Path(sys.argv[1])
torch.manual_seed(3)


def write(name, config, tensors, description=None):
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    if description:
        (folder / "quant_model_description.json").write_text(json.dumps(description, indent=1) + "\n")
    save_file({k: v.clone().contiguous() for k, v in tensors.items()}, folder / "model.safetensors", {"format": "pt"})


def awkward_rows(rows, columns):
    x = torch.randn(rows, columns) * 0.1
    x[1, :32] = 0.0
    x[2, 5] = 7.25
    x[3, :32] = 1e-6 * torch.randn(32)
    x[4, :64] = torch.arange(64) / 64.0
    return x.to(torch.bfloat16).float()


def compressed(preset, fmt, scale_to):
    x = awkward_rows(8, 96)
    scheme: QuantizationScheme = preset_name_to_scheme(preset, ["Linear"])
    scheme.weights.group_size = 32
    groups = x.reshape(8, 3, 32)
    scale, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), scheme.weights)
    scale = scale_to(scale)
    compressor = BaseCompressor.get_value_from_registry(fmt)
    state = compressor.compress({"weight": x, "weight_scale": scale}, scheme)
    if fmt == "pack-quantized":
        state["weight_scale"] = state["weight_scale"].to(torch.bfloat16)
        state["weight_shape"] = state["weight_shape"].to(torch.int32)
    back = compressor.decompress({**state, "weight_scale": state["weight_scale"].float()
                                  if fmt == "pack-quantized" else state["weight_scale"]}, scheme)
    # mxfp4's decompress gives bf16 with scales of 2^n: exact
    return x, state, back["weight"].float()


def groups_config(fmt, kind):
    weights = {"num_bits": 4, "type": kind, "symmetric": True, "group_size": 32, "strategy": "group", "dynamic": False}
    return {"quant_method": "compressed-tensors", "format": fmt, "ignore": ["lm_head"], "quantization_status":
            "compressed", "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights,
                                                        "input_activations": None, "output_activations": None}}}


def int4():
    base = "language_model.model.layers.1.mlp.experts.0.gate_proj"
    x, state, back = compressed("W4A16", "pack-quantized", lambda s: s.to(torch.bfloat16).float())
    tensors = {f"{base}.{k}": v for k, v in state.items() if k != "weight_zero_point"}
    tensors |= {f"{base}.input": x, f"{base}.expected": back}
    write("int4", {"text_config": {"quantization_config": groups_config("pack-quantized", "int")}}, tensors)


def mxfp4():
    base = "language_model.model.layers.1.block_sparse_moe.experts.0.w1"
    x, state, back = compressed("MXFP4", "mxfp4-pack-quantized", lambda s: s)
    tensors = {f"{base}.{k}": v for k, v in state.items()}
    tensors |= {f"{base}.input": x, f"{base}.expected": back}
    write("mxfp4", {"quantization_config": groups_config("mxfp4-pack-quantized", "float")}, tensors)


def fp8():
    base = "model.layers.0.self_attn.q_a_proj"
    x = (torch.randn(130, 256) * 0.1).to(torch.bfloat16).float()
    x[0, 0], x[129, 255] = 3.0, -5.0
    blocks = torch.nn.functional.pad(x, (0, 0, 0, 126)).reshape(2, 128, 2, 128)
    scale = blocks.abs().amax((1, 3)) / 448
    codes = (x / scale.repeat_interleave(128, 0)[:130].repeat_interleave(128, 1)).to(torch.float8_e4m3fn)
    rows = torch.tensor([0, 1, 127, 128, 129])
    expected = codes.float() * scale.repeat_interleave(128, 0)[:130].repeat_interleave(128, 1)
    tensors = {f"{base}.weight": codes, f"{base}.weight_scale_inv": scale, f"{base}.rows": rows,
               f"{base}.expected": expected[rows], f"{base}.input": x.to(torch.bfloat16)}
    config = {"quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                                      "weight_block_size": [128, 128]}}
    write("fp8", config, tensors)


E2M1 = torch.tensor([0.0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def modelslim():
    tensors, description = {}, {"model_quant_type": "W8A8_DYNAMIC", "version": "1.0.0", "group_size": 0}

    def add(base, kind, parts, expected):
        for suffix, tensor in parts.items():
            tensors[f"{base}.{suffix}"] = tensor
            description[f"{base}.{suffix}"] = kind
        tensors[f"{base}.expected"] = expected

    layer = "model.layers.0."
    codes = torch.randint(-128, 128, (6, 40), dtype=torch.int8)
    scale = torch.rand(6, 1) + 0.1
    add(layer + "self_attn.q_a_proj", "W8A8_DYNAMIC",
        {"weight": codes, "weight_scale": scale, "weight_offset": torch.zeros(6, 1)}, codes.float() * scale)

    for base, as_bits in ((layer + "mlp.gate_proj", False), (layer + "mlp.up_proj", True)):
        codes = torch.randint(-128, 128, (6, 40), dtype=torch.int8)
        weight_scale = torch.rand(6) + 0.1
        input_scale, offset = torch.tensor([0.03125]), torch.tensor([-5], dtype=torch.int8)
        deq = weight_scale * input_scale
        bias = -int(offset) * codes.int().sum(1, dtype=torch.int32)
        stored = deq.view(torch.int32).to(torch.int64) if as_bits else deq
        add(base, "W8A8", {"weight": codes, "input_scale": input_scale, "input_offset": offset, "deq_scale": stored,
                           "quant_bias": bias}, codes.float() * (deq / input_scale)[:, None])

    for expert in (0, 1):
        nibbles = torch.randint(-8, 8, (8, 20), dtype=torch.int16)
        scale = torch.rand(8, 1) + 0.1
        pairs = ((nibbles[0::2] & 15) | ((nibbles[1::2] & 15) << 4)).to(torch.uint8).view(torch.int8)
        add(f"{layer}mlp.experts.{expert}.gate_proj", "W4A8_DYNAMIC",
            {"weight": pairs, "weight_scale": scale, "weight_offset": torch.zeros(8, 1),
             "scale_bias": 8 * (nibbles.float() * scale).sum(1, keepdim=True)}, nibbles.float() * scale)

    codes = torch.randint(0, 16, (5, 64), dtype=torch.uint8)
    exponents = torch.randint(120, 134, (5, 2), dtype=torch.uint8)
    expected = E2M1[codes.int()] * torch.exp2(exponents.float() - 127).repeat_interleave(32, 1)
    add(layer + "mlp.shared_experts.down_proj", "W4A8_MXFP",
        {"weight": codes[:, 0::2] | codes[:, 1::2] << 4, "weight_scale": exponents}, expected)

    codes = (torch.randn(5, 64) * 20).to(torch.float8_e4m3fn)
    expected = codes.float() * torch.exp2(exponents.float() - 127).repeat_interleave(32, 1)
    add(layer + "self_attn.o_proj", "W8A8_MXFP8", {"weight": codes, "weight_scale": exponents}, expected)

    plain = torch.randn(3, 8).to(torch.bfloat16)
    add(layer + "self_attn.kv_b_proj", "FLOAT", {"weight": plain}, plain.float())
    write("modelslim", {"model_type": "deepseek_v3"}, tensors, description)


int4()
mxfp4()
fp8()
modelslim()
