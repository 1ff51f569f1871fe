#!/usr/bin/env python3
"""Greedy continuations and logits of SmolLM2-135M-Instruct (Q4_1) by llama.cpp, for src/models/smollm2_test.cc.

    python models_smollm2_logits.py PATH/TO/SmolLM2-135M-Instruct.Q4_1.gguf > src/models/testdata/smollm2_llama_cpp.json

Needs llama-cpp-python. For each prompt: its token ids, the ids llama.cpp continues with (argmax), the gap between the
best and the second logit at each step, and the last prompt position's logits of every 97th token and of the best 20.
"""
import json
import sys

import llama_cpp
import numpy as np

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    ",
    "<|im_start|>user\nWhat is gravity?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWrite a haiku about autumn leaves.<|im_end|>\n<|im_start|>assistant\n",
    "1, 1, 2, 3, 5, 8, 13,",
    "Water boils at a temperature of",
    "The following is a list of the planets of the solar system:\n1. Mercury\n2.",
]
# A prompt of about 900 tokens, so that two spans of the attention lanes are in use.
LONG = "The quick brown fox jumps over the lazy dog. " * 90
STEPS = 24


def main():
    path = sys.argv[1]
    llm = llama_cpp.Llama(path, n_ctx=2048, n_threads=2, logits_all=False, verbose=False, seed=0)
    cases = []
    for prompt in PROMPTS + [LONG]:
        ids = llm.tokenize(prompt.encode(), add_bos=False, special=True)
        llm.reset()
        llm.eval(ids)
        case = {"prompt": prompt if len(prompt) < 200 else "long", "ids": ids, "continuation": [], "gaps": []}
        vocab = llm.n_vocab()
        for step in range(STEPS):
            logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(llm.ctx, -1), shape=(vocab,)).copy()
            order = np.argsort(-logits, kind="stable")
            if step == 0:
                picked = sorted(set(range(0, vocab, 97)) | set(int(i) for i in order[:20]))
                case["logit_ids"] = picked
                case["logits"] = [round(float(logits[i]), 5) for i in picked]
            case["continuation"].append(int(order[0]))
            case["gaps"].append(round(float(logits[order[0]] - logits[order[1]]), 4))
            llm.eval([int(order[0])])
        cases.append(case)
    json.dump({"made_by": "tools/goldens/models_smollm2_logits.py", "llama_cpp_python": llama_cpp.__version__,
               "model": path.split("/")[-1], "cases": cases}, sys.stdout)
    print()


main()
