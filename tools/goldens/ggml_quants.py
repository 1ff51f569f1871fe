#!/usr/bin/env python3
"""Golden values of the GGUF block formats, made by PyPI `gguf` (ggml-org's own Python reference).

    python3 tools/goldens/ggml_quants.py src/weights/testdata/ggml_quants.gguf

The file itself is a GGUF file written by gguf.GGUFWriter. For each format F it holds
    F.blocks     random blocks, every bit pattern likely, scales finite
    F.values     gguf.quants.dequantize(F.blocks), fp32
and for the formats that gguf.quants can quantise
    F.quantised  gguf.quants.quantize(input, F)
`input` holds random rows and the awkward ones: zeros, a constant, one outlier, tiny values, exact ties.
"""
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

ELEMENTS = 1024
SCALE_OFFSETS = {  # where a block keeps its f16 values
    T.F16: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0],
    T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
}
QUANTISED = [T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0]


def random_blocks(rng, kind):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (ELEMENTS // elements, size), dtype=np.uint8)
    for offset in SCALE_OFFSETS.get(kind, []):
        half = blocks[:, offset:offset + 2].copy().view(np.uint16)
        half = np.where((half & 0x7C00) == 0x7C00, half & 0xBFFF, half).astype(np.uint16)  # neither inf nor NaN
        blocks[:, offset:offset + 2] = half.view(np.uint8)
    if kind == T.BF16:
        blocks[:, 1] = (blocks[:, 1] & 0x80) | (blocks[:, 1] & 0x3F) | 0x20
    return blocks.reshape(1, -1)


def awkward_input(rng):
    x = rng.standard_normal((16, 256)).astype(np.float32)
    x[1] = 0
    x[2] = 0.75
    x[3, 17] = 1000
    x[4] *= 1e-6
    x[5] = np.round(x[5] * 4) / 8
    x[6] = np.abs(x[6])
    x[7] = -np.abs(x[7])
    x[8, ::2] = -x[8, 1::2]
    return x


def main():
    rng = np.random.default_rng(20240607)
    writer = gguf.GGUFWriter(sys.argv[1], "goldens")
    writer.add_string("baton.provenance", f"tools/goldens/ggml_quants.py, PyPI gguf {version()}")
    x = awkward_input(rng)
    writer.add_tensor("input", x)
    for kind in [T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q4_K, T.Q5_K, T.Q6_K]:
        blocks = random_blocks(rng, kind)
        values = gguf.quants.dequantize(blocks, kind).astype(np.float32)
        assert np.isfinite(values).all(), kind
        name = kind.name.lower()
        writer.add_tensor(f"{name}.blocks", blocks, raw_dtype=kind)
        writer.add_tensor(f"{name}.values", values)
        if kind in QUANTISED:
            writer.add_tensor(f"{name}.quantised", gguf.quants.quantize(x, kind).view(np.uint8), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def version():
    from importlib.metadata import version as of
    return of("gguf")


main()
