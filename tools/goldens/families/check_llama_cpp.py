#!/usr/bin/env python3
"""Runs llama.cpp (PyPI llama-cpp-python) on the GGUF twins and compares its logits and layers with the reference:

    python check_llama_cpp.py [family...]        needs numpy, gguf, llama-cpp-python

llama.cpp normalises after q_a and kv_a, and KDA's q and k, with the model's rms_norm_eps, and leaves yarn's amplitude at 1
whatever `mscale` says; the reference is run with the same, so that what remains is rounding. The
distance to the golden is printed too. The logits for the long prompt go to <family>/llama_cpp/.
"""

import ctypes
import importlib.metadata
import sys
import tempfile

import llama_cpp
import numpy as np

from gguf_twin import ARCH, Twin
from make_goldens import settings_like
from ref_model import forward, settings
from tiny import ROOT, apart, read_blobs, write_blobs

GGML_F32 = 0
FLASH_OFF = 0


def quiet(level, text, _):
    if level == 4:  # errors
        sys.stderr.write(text.decode(errors="replace"))


def logits_of(path, ids, vocab):
    """Logits [tokens, vocab], all prompt tokens in one batch."""
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = 0
    params.use_mmap = False
    model = llama_cpp.llama_model_load_from_file(path.encode(), params)
    assert model, f"llama.cpp does not load {path}"
    context_params = llama_cpp.llama_context_default_params()
    context_params.n_ctx, context_params.n_batch, context_params.n_ubatch = 512, 512, 512
    context_params.n_threads = context_params.n_threads_batch = 1
    context_params.type_k = context_params.type_v = GGML_F32
    context_params.flash_attn_type = FLASH_OFF
    context = llama_cpp.llama_init_from_model(model, context_params)
    assert context, "llama.cpp makes no context"
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = int(token), i, 1, 1
        batch.seq_id[i][0] = 0
    batch.n_tokens = len(ids)
    assert llama_cpp.llama_decode(context, batch) == 0
    rows = [np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, i), (vocab,)).copy() for i in range(len(ids))]
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return np.stack(rows).astype(np.float64)


def compare(family, case, twin, path):
    s = settings(twin.config)
    same = settings_like(s, lora_eps=s.eps, unit_eps=s.eps)
    if s.scaling:
        same.scaling = dict(s.scaling, mscale=s.scaling["mscale_all_dim"])
    _, want = read_blobs(ROOT / family / case)
    got = logits_of(path, want["ids"], twin.c["vocab_size"])
    like = forward(same, twin.arrays, want["ids"]).logits
    print(
        f"{family} as {twin.arch}, {case}: logits {apart(got, like):.1e} (worst row {max(map(apart, got, like)):.1e}) from "
        f"the reference with llama.cpp's constants, {apart(got, want['logits']):.1e} from the golden"
    )
    return dict(ids=want["ids"], logits=got), dict(lora_norm_eps=same.lora_eps, unit_norm_eps=same.unit_eps)


def main():
    print("llama-cpp-python", llama_cpp.__version__, "gguf", importlib.metadata.version("gguf"), "numpy", np.__version__)
    callback = llama_cpp.llama_log_callback(quiet)
    llama_cpp.llama_log_set(callback, ctypes.c_void_p(0))
    for family in sys.argv[1:] or ARCH:
        twin = Twin(family)
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/twin.gguf"
            twin.write_gguf(path)
            (arrays, constants), _ = [compare(family, case, twin, path) for case in ("long", "short")]
        extra = dict(
            family=family,
            case="long",
            made_by="tools/goldens/families/check_llama_cpp.py",
            reference=twin.arch,
            dtype="float32",
            llama_cpp_python=llama_cpp.__version__,
            yarn_amplitude=1.0,
            **constants,
        )
        write_blobs(ROOT / family / "llama_cpp", arrays, extra)


if __name__ == "__main__":
    main()
