#!/usr/bin/env python3
"""Makes tests/data/goldens/smollm2_llama_cpp.json: what llama.cpp (PyPI llama-cpp-python) says of SmolLM2.

  pip install llama-cpp-python && tools/goldens/smollm2_llama_cpp.py MODEL.gguf

For 50 prompts: their token ids, 48 greedily continued ids, and at each step the margin between the two best logits, so
that a reader can tell a near-tie from a difference. For one fixed text (alice.txt, Lewis Carroll, public domain): the
mean negative log-likelihood per token.
"""
import hashlib
import json
import pathlib
import sys

import llama_cpp
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE.parent.parent / "tests/data/goldens/smollm2_llama_cpp.json"
STEPS = 48

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


def log_softmax(logits):
    shifted = logits.astype(np.float64) - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def main():
    model_path = sys.argv[1]
    model = llama_cpp.Llama(model_path, n_ctx=2048, n_threads=2, logits_all=True, flash_attn=True, verbose=False)
    cases = []
    for prompt in PLAIN + [chat(q) for q in CHAT]:
        ids = model.tokenize(prompt.encode(), add_bos=False, special=True)
        model.reset()
        model.eval(ids)
        output, margins = [], []
        for _ in range(STEPS):
            logits = model.scores[model.n_tokens - 1]
            best, second = np.argsort(-logits, kind="stable")[:2]
            output.append(int(best))
            margins.append(round(float(logits[best] - logits[second]), 4))
            if best == model.token_eos():
                break
            model.eval([int(best)])
        cases.append({"prompt": prompt, "prompt_ids": ids, "output_ids": output, "margins": margins})

    text = (HERE / "alice.txt").read_text()
    ids = model.tokenize(text.encode(), add_bos=False, special=False)
    model.reset()
    model.eval(ids)
    nll = [-log_softmax(model.scores[i])[ids[i + 1]] for i in range(len(ids) - 1)]
    OUT.write_text(json.dumps({
        "provenance": f"llama-cpp-python {llama_cpp.__version__} (PyPI), CPU build, flash attention on, "
                      "by tools/goldens/smollm2_llama_cpp.py",
        "model_sha256": hashlib.sha256(pathlib.Path(model_path).read_bytes()).hexdigest(),
        "cases": cases,
        "perplexity": {"text": "tools/goldens/alice.txt", "ids": ids, "mean_nll": float(np.mean(nll)),
                       "perplexity": float(np.exp(np.mean(nll)))},
    }, separators=(",", ":")))
    print(len(cases), "cases,", len(ids), "tokens, perplexity", float(np.exp(np.mean(nll))))


if __name__ == "__main__":
    main()
