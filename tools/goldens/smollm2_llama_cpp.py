#!/usr/bin/env python3
"""Makes tests/data/goldens/smollm2_llama_cpp.json: what llama.cpp (PyPI llama-cpp-python) says of SmolLM2.

  pip install llama-cpp-python && tools/goldens/smollm2_llama_cpp.py MODEL.gguf

For 50 prompts: their token ids and 48 greedily continued ids. At each step also what exact arithmetic says (float64 over
the same dequantised weights, llama_numpy.py): its best token, and by how much its best logit leads the second, so that a
reader can tell a near-tie from a difference. For one fixed text (alice.txt, by Lewis Carroll, in the public domain, then
the beginning of the GNU Free Documentation License as Debian has it): the perplexity by both.
"""
import hashlib
import json
import pathlib
import sys

import gguf
import llama_cpp
import numpy as np

from llama_numpy import forward

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE.parent.parent / "tests/data/goldens/smollm2_llama_cpp.json"
STEPS = 48
LICENSE = pathlib.Path("/usr/share/common-licenses/GFDL-1.3")
LICENSE_CHARACTERS = 12000
NAMES = {"embedding": "token_embd", "lm_head": "token_embd", "final_norm": "output_norm", "attn_norm": "blk.{}.attn_norm",
         "q": "blk.{}.attn_q", "k": "blk.{}.attn_k", "v": "blk.{}.attn_v", "o": "blk.{}.attn_output",
         "mlp_norm": "blk.{}.ffn_norm", "gate": "blk.{}.ffn_gate", "up": "blk.{}.ffn_up", "down": "blk.{}.ffn_down"}
SHAPE = {"layers": 30, "heads": 9, "kv_heads": 3, "head_dim": 64, "rope_dim": 64, "theta": 100000.0, "eps": 1e-5,
         "interleaved": True}

PLAIN = [
    "The capital of France is", "Once upon a time there was a", "def fibonacci(n):\n", "Water boils at", "1, 1, 2, 3, 5, 8,",
    "The three primary colours are", "To be, or not to be,", "import numpy as np\n", "The mitochondria is the",
    "In 1969, humans first", "A good recipe for bread starts with", "SELECT name FROM users WHERE", "The speed of light is about",
    "Dear Sir or Madam,\n\n", "Photosynthesis is the process by which", "The opposite of hot is", "My favourite season is",
    "Q: What is 12 times 12?\nA:", "The largest planet in the solar system is", "#include <stdio.h>\n\nint main(",
    "La capitale de l'Italie est", "Der schnellste Weg nach", "Shakespeare was born in", "An atom consists of",
    "The quick brown fox", "Roses are red,\nviolets are", "The Great Wall of China was built",
    "A prime number is a number that", "The human heart has", "Gravity is a force that",
]
CHAT = [
    "Why is the sky blue?", "Write a haiku about the sea.", "What is the capital of Japan?", "Explain recursion to a child.",
    "List three uses of a brick.", "Translate 'good morning' into Spanish.", "What is 7 + 15?", "Who wrote Pride and Prejudice?",
    "Give me a tip for better sleep.", "What causes the tides?", "Name a mammal that lays eggs.", "How do I boil an egg?",
    "What is the square root of 81?", "Tell me a fun fact about octopuses.", "What does HTTP stand for?",
    "Summarise the water cycle in one sentence.", "What is the boiling point of water in Fahrenheit?",
    "Write a Python function that reverses a string.", "What is the largest ocean?", "Why do cats purr?",
]
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def chat(question):
    return (f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")


class Exact:
    """Logits in float64 over the file's dequantised weights."""

    def __init__(self, path):
        self.tensors = {t.name: t for t in gguf.GGUFReader(path).tensors}
        self.cache = {}

    def get(self, role, layer):
        if role.endswith("_bias"):
            return None
        name = NAMES[role].format(layer) + ".weight"
        if name not in self.cache:
            tensor = self.tensors[name]
            self.cache[name] = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
        return self.cache[name]

    def logits(self, ids):
        return forward(SHAPE, self.get, ids)


def log_softmax(logits):
    shifted = logits.astype(np.float64) - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def continuation(model, exact, prompt):
    ids = model.tokenize(prompt.encode(), add_bos=False, special=True)
    model.reset()
    model.eval(ids)
    output = []
    for _ in range(STEPS):
        output.append(int(np.argmax(model.scores[model.n_tokens - 1])))
        if output[-1] == model.token_eos():
            break
        model.eval([output[-1]])
    best, margins = [], []
    for logits in exact.logits(ids + output)[len(ids) - 1:-1]:
        first, second = np.argsort(-logits, kind="stable")[:2]
        best.append(int(first))
        margins.append(round(float(logits[first] - logits[second]), 4))
    return {"prompt": prompt, "prompt_ids": ids, "output_ids": output, "exact_best": best, "exact_margins": margins}


def mean_nll(logits, ids):
    return float(np.mean([-log_softmax(logits[i])[ids[i + 1]] for i in range(len(ids) - 1)]))


def main():
    model_path = sys.argv[1]
    model = llama_cpp.Llama(model_path, n_ctx=4096, n_threads=2, logits_all=True, flash_attn=True, verbose=False)
    exact = Exact(model_path)
    cases = [continuation(model, exact, prompt) for prompt in PLAIN + [chat(q) for q in CHAT]]
    agreed = sum(o == b for c in cases for o, b in zip(c["output_ids"], c["exact_best"]))
    total = sum(len(c["output_ids"]) for c in cases)

    text = (HERE / "alice.txt").read_text() + LICENSE.read_text()[:LICENSE_CHARACTERS]
    ids = model.tokenize(text.encode(), add_bos=False, special=False)
    model.reset()
    model.eval(ids)
    perplexity = float(np.exp(mean_nll(model.scores, ids)))
    exact_perplexity = float(np.exp(mean_nll(exact.logits(ids), ids)))
    OUT.write_text(json.dumps({
        "provenance": f"llama-cpp-python {llama_cpp.__version__} (PyPI), CPU build, flash attention on, and "
                      "llama_numpy.py, by tools/goldens/smollm2_llama_cpp.py",
        "model_sha256": hashlib.sha256(pathlib.Path(model_path).read_bytes()).hexdigest(),
        "cases": cases,
        "perplexity": {"ids": ids, "perplexity": perplexity, "exact": exact_perplexity},
    }, separators=(",", ":")))
    print(f"{len(cases)} cases, llama.cpp takes exact arithmetic's token {agreed} of {total} times; {len(ids)} tokens of "
          f"text, perplexity {perplexity:.4f}, exact {exact_perplexity:.4f}")


if __name__ == "__main__":
    main()
