#!/usr/bin/env python3
"""Writes tests/data/kernels/gguf_blocks.txt: file bytes of every GGUF block format and the fp32 values they stand for.

Authority: gguf.quants.dequantize of the PyPI package `gguf` (the GGUF format's own Python library). The first row of a
format is made of random bytes with finite scales, so that every bit of a block matters; where the package can quantise,
the second row is its quantisation of Gaussian numbers.

Usage: python3 tools/goldens/make_gguf_blocks.py > tests/data/kernels/gguf_blocks.txt
"""
import importlib.metadata
import zlib

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import quants

K = 512
FORMATS = {  # name: (type, elements a block, bytes a block, offsets of f16 scales)
    "f16": (T.F16, 1, 2, None),
    "bf16": (T.BF16, 1, 2, None),
    "q4_0": (T.Q4_0, 32, 18, [0]),
    "q4_1": (T.Q4_1, 32, 20, [0, 2]),
    "q5_0": (T.Q5_0, 32, 22, [0]),
    "q5_1": (T.Q5_1, 32, 24, [0, 2]),
    "q8_0": (T.Q8_0, 32, 34, [0]),
    "q4_k": (T.Q4_K, 256, 144, [0, 2]),
    "q5_k": (T.Q5_K, 256, 176, [0, 2]),
    "q6_k": (T.Q6_K, 256, 210, [208]),
}


def random_row(rng, elements, size, scales):
    blocks = K // elements
    raw = rng.integers(0, 256, (blocks, size), dtype=np.uint8)
    for offset in scales:
        values = rng.normal(0, 0.02, blocks).astype(np.float16)
        raw[:, offset : offset + 2] = values.view(np.uint8).reshape(blocks, 2)
    return raw.reshape(-1)


def main():
    print(f"# tools/goldens/make_gguf_blocks.py, gguf {importlib.metadata.version('gguf')}, numpy {np.__version__}")
    print("# format K file-bytes-in-hex fp32-values-in-hex (little endian)")
    for name, (kind, elements, size, scales) in FORMATS.items():
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        rows = []
        if scales is not None:
            rows.append(random_row(rng, elements, size, scales))
        try:
            rows.append(quants.quantize(rng.normal(0, 1, K).astype(np.float32), kind).view(np.uint8).reshape(-1))
        except NotImplementedError:
            pass
        for raw in rows:
            values = np.asarray(quants.dequantize(raw, kind), dtype="<f4").reshape(-1)
            assert values.size == K and np.isfinite(values).all()
            print(name, K, raw.tobytes().hex(), values.tobytes().hex())


if __name__ == "__main__":
    main()
