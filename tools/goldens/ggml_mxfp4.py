#!/usr/bin/env python3
"""Golden values of GGUF's MXFP4 (ggml type 39), made by PyPI `gguf` (ggml-org's own Python reference), 0.19.0.

    PYTHONDONTWRITEBYTECODE=1 python3 tools/goldens/ggml_mxfp4.py src/weights/testdata/ggml_mxfp4.gguf

blk.0.ffn_gate_exps.weight holds random blocks [2 experts, 3, 64], every code likely, scales finite; `expected` their values
by gguf.quants.dequantize.
"""
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

rng = np.random.default_rng(39)
blocks = rng.integers(0, 256, (6, 2, 17), dtype=np.uint8)
blocks[:, :, 0] = rng.integers(100, 150, (6, 2))
blocks = blocks.reshape(2, 3, 34)
writer = gguf.GGUFWriter(sys.argv[1], "goldens")
writer.add_string("baton.provenance", "tools/goldens/ggml_mxfp4.py, PyPI gguf 0.19.0")
writer.add_tensor("blk.0.ffn_gate_exps.weight", blocks, raw_dtype=T.MXFP4)
writer.add_tensor("expected", gguf.quants.dequantize(blocks, T.MXFP4).astype(np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
