#!/usr/bin/env python3
"""tools/fuzz_seeds.py BUILD FOLDER: writes a seed corpus and a dictionary for each fuzz target from the repository.

FOLDER/<target>/* are whole inputs, FOLDER/<target>.dict the words of the format where it has some. BUILD is the build
folder of the fuzz preset: its *_fuzz_seeds write the binary formats.
"""
import copy
import hashlib
import json
import re
import struct
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests/data"
WORDS_MAX = 400


def load(path):
    return json.loads(path.read_text(encoding="utf-8"))


class Seeds:
    def __init__(self, folder, target):
        self.folder = folder / target
        self.folder.mkdir(parents=True, exist_ok=True)
        self.dictionary = folder / f"{target}.dict"

    def put(self, data):
        data = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
        (self.folder / hashlib.sha1(data).hexdigest()).write_bytes(data)

    def words(self, words):
        def escape(word):
            return "".join(f"\\x{byte:02x}" for byte in word.encode("utf-8"))

        lines = sorted({f'"{escape(word)}"' for word in words if 1 < len(word) <= 64})
        self.dictionary.write_text("\n".join(lines[:WORDS_MAX]) + "\n")


def strings(value):
    """All keys and short strings of a JSON value except for vocabularies."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield key
            if key not in ("vocab", "merges"):
                yield from strings(member)
    elif isinstance(value, list):
        for member in value:
            yield from strings(member)
    elif isinstance(value, str):
        yield value


def shrunk(tokenizer):
    """The same components over the shortest vocabulary that still merges: mutations then hit the components."""
    small = copy.deepcopy(tokenizer)
    model = small["model"]
    merges = model["merges"][:12]
    parts = [merge if isinstance(merge, list) else merge.split(" ") for merge in merges]
    kept = {"".join(pair) for pair in parts} | {part for pair in parts for part in pair} | {model.get("unk_token")}
    model["merges"] = merges
    model["vocab"] = {word: id for word, id in model["vocab"].items() if word in kept}
    return small


def tokenizer_json(folder):
    seeds = Seeds(folder, "tokenizer_json_fuzz")
    words = set()
    paths = [*sorted(DATA.glob("tokenizers/*/tokenizer.json")), DATA / "tiny_llama/tokenizer.json"]
    for path in paths:
        whole = load(path)
        words.update(strings(whole))
        for one in (whole, shrunk(whole)):
            seeds.put(json.dumps(one, ensure_ascii=False) + "\nHello  world, don't 123 <s> é 你好 \U0001f600\n")
    seeds.words(words)


def gguf_tokenizer(folder):
    seeds = Seeds(folder, "gguf_tokenizer_fuzz")
    for model, pre, name in (("gpt2", "smollm", "smollm"), ("gpt2", "llama-bpe", "llama3"), ("gpt2", "qwen2", "qwen2"),
                             ("gpt2", "deepseek-v3", "deepseek_v3"), ("gpt2", "default", "default_pre"),
                             ("llama", "", "llama2")):
        whole = load(DATA / f"tokenizers/{name}/tokenizer.json")
        for one in (whole, shrunk(whole)):
            specials = [token["content"] for token in one["added_tokens"]]
            lines = [model, pre] + [special + "\x01\x03" for special in specials]
            lines += [word for word in one["model"]["vocab"] if word not in specials and "\n" not in word]
            merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in one["model"]["merges"]]
            seeds.put("\n".join(lines + [""] + merges + ["", "Hello  world, don't 123 <s> é 你好"]))


def tiktoken(folder):
    """Few ranks behind the 256 bytes ("+"), the whole small file, and lines that are refused."""
    seeds = Seeds(folder, "tiktoken_fuzz")
    lines = (DATA / "tokenizers/kimi_tiktoken/tiktoken.model").read_text().split("\n")
    text = "Hello  WORLD don't 123中文 é 你好 [EOS] <|open|>"
    for count in (0, 3, 40):
        seeds.put("+" + "\n".join(lines[256 : 256 + count]) + "\n\n" + text)
    seeds.put("\n".join(lines[:300]) + "\n\n" + text)
    for line in ("YWI= 256", "YWI=256", "YWI 256", "YWJ= 256", "YWI= 0256", "YWI= 99999999", "YQ== 256", "YWI= 255\r"):
        seeds.put("+" + line + "\n\n" + text)
    seeds.words(["YWI=", " 256", "<|reserved_token_256|>", "\r\n"])


def sentencepiece(folder):
    seeds = Seeds(folder, "sentencepiece_fuzz")

    def field(number, data):
        size, head = len(data), bytes([number << 3 | 2])
        while size > 127:
            head += bytes([size & 127 | 128])
            size >>= 7
        return head + bytes([size]) + data

    # A character map from "A" to "b": the libraries' own are 240 KB.
    units = [0] * 256
    units[0x41], units[0x40] = 1 << 10 | 1 << 8 | 0x41, 1 << 31
    character_map = struct.pack("<257I", 1024, *units) + b"b\0"
    for path in sorted(DATA.glob("tokenizers/*/tokenizer.model")):
        seeds.put(path.read_bytes())
        seeds.put(path.read_bytes() + field(3, field(2, character_map)))


def http(folder):
    for target, name in (("http_request_fuzz", "requests"), ("http_response_fuzz", "responses")):
        seeds = Seeds(folder, target)
        words = set()
        for case in load(DATA / f"http/{name}.json"):
            raw = case["raw"]
            if len(raw) <= 8192:
                seeds.put(raw.encode("latin-1"))
            words.update(word for word in re.split(r"[\r\n:;, ]+", raw) if word.isascii())
        seeds.words(words)


def sse(folder):
    seeds = Seeds(folder, "sse_fuzz")
    chunk = {"id": "cmpl-1", "object": "text_completion", "choices": [{"index": 0, "text": "é"}]}
    data = "data: " + json.dumps(chunk)
    for text in (f"{data}\n\ndata: [DONE]\n\n", f"{data}\r\n\r\n", ": comment\n\nevent: error\nid: 3\nretry: 5\ndata: a\ndata:b\n\n",
                 "\ufeffdata\n\n", "data: a\rdata: b\r\r"):
        seeds.put(text)
    seeds.words(["data:", "event:", "id:", "retry:", "\r\n", "\n\n", "\ufeff", "[DONE]"])


def chat_template(folder):
    seeds = Seeds(folder, "chat_template_fuzz")
    words = set()
    for path in sorted(DATA.glob("chat_templates/*.json")):
        for case in load(path)["cases"]:
            template = case.get("template", "")
            if len(template) <= 4096:
                seeds.put(template)
            words.update(re.findall(r"\{%-?|-?%\}|\{\{-?|-?\}\}|[a-z_]{3,}", template))
    seeds.words(words)


def output_parser(folder):
    """Two bytes choose the parsers by their place in OutputFormat's lists, one past the end for none."""
    seeds = Seeds(folder, "output_parser_fuzz")
    reasoning = ["deepseek_r1", "deepseek_v3", "kimi_k2", "kimi_k3", ""]
    tools = ["deepseek_v3", "deepseek_v31", "hermes", "kimi_k2", "kimi_k3", ""]
    words = {"functions.f:0", "\n```json\n", 'call tool="f"', 'argument key="k" type="object"', '"name"', '"arguments"'}
    for path in sorted(DATA.glob("tool_calls/*.json")):
        for case in load(path)["cases"]:
            pieces = [case["text"]] if "text" in case else case["pieces"]
            text = "".join(piece if isinstance(piece, str) else piece["token"] for piece in pieces)
            words.update(re.findall(r"</?[a-z_]{3,}>|<[|｜][a-z_▁]+[|｜]>", text))
            head = bytes([reasoning.index(case.get("reasoning", "")), tools.index(case.get("tools", ""))])
            if len(text) <= 2048:
                seeds.put(head + text.encode())
    seeds.words(words)


def ordered_json(folder):
    seeds = Seeds(folder, "ordered_json_fuzz")
    for name in ("bad_requests", "bad_fields"):
        for case in load(DATA / f"api/{name}.json"):
            seeds.put(json.dumps(case))
    seeds.put(json.dumps({f"k{i % 30}": [i, -i, i / 3, None, {"k": [True, False]}, "é\n"] for i in range(60)}))
    seeds.put("{" + ",".join(f'"k{i % 30}":{i}' for i in range(60)) + "}")  # repeated keys, beyond the index


def bodies(folder):
    """Requests, each alone and with an answer of an engine behind it."""
    answer = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m", "prompt_token_ids": [1, 2],
              "choices": [{"index": 0, "text": "a", "token_ids": [3, 4], "finish_reason": None, "stop_reason": None,
                           "logprobs": {"tokens": ["a"], "token_logprobs": [-1], "top_logprobs": [{"a": -1}],
                                        "text_offset": [0]}}],
              "kv_transfer_params": {"baton_seed": "7"},
              "usage": {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4,
                        "prompt_tokens_details": {"cached_tokens": 1}}}
    recomputed = copy.deepcopy(answer)
    recomputed["choices"][0]["stop_reason"] = "recomputed"
    chat = {"object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant", "content": "a"},
                                                     "delta": {"content": "a"}, "token_ids": [3],
                                                     "logprobs": {"content": [{"token": "a", "logprob": -1}]}}]}
    server, proxy = Seeds(folder, "server_request_fuzz"), Seeds(folder, "proxy_body_fuzz")
    words = set(strings(answer)) | set(strings(chat)) | {"stream", "stream_options", "messages", "n", "max_tokens"}
    for name in ("bad_requests", "bad_fields"):
        for case in load(DATA / f"api/{name}.json"):
            body = case.get("body", case)
            words.update(strings(body))
            text = body if isinstance(body, str) else json.dumps(body)
            server.put(text)
            for said in (answer, recomputed, chat):
                proxy.put(text + "\0" + json.dumps(said))
    for said in (answer, recomputed, chat):
        for one in ({"prompt": "a", "stream": True}, {"messages": [{"role": "user", "content": "a"}], "n": 1}):
            proxy.put(json.dumps(one) + "\0" + json.dumps(said))
            proxy.put(json.dumps(one) + " \0" + json.dumps(said))
    server.put(json.dumps({"prompt": "a", "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
                           "tool_choice": "auto", "logit_bias": {"3": 1}, "stop": ["a"], "stop_token_ids": [1],
                           "messages": [{"role": "assistant", "tool_calls": [
                               {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}]}))
    for seeds in (server, proxy):
        seeds.words(words)


def configs(folder):
    """The first byte says who reads it: config.json or GGUF metadata, DeepSeek's family or Llama's."""
    seeds = Seeds(folder, "config_fuzz")
    words = set()
    families = DATA / "goldens/families"
    for path in (DATA / "tiny_llama/config.json", *sorted(families.glob("*/config.json"))):
        config = load(path)
        words.update(strings(config))
        for reader in (b"\0", b"\2"):
            seeds.put(reader + json.dumps(config).encode())
    for path in sorted(families.glob("*/gguf.json")):
        metadata = {entry["key"]: entry["value"] for entry in load(path)["metadata"]}
        words.update(metadata)
        seeds.put(b"\1" + json.dumps(metadata).encode())
    seeds.words(words)


def handoff(folder):
    """An honest exchange by shared memory and by TCP, and beginnings of it that are disturbed."""
    seeds = Seeds(folder, "handoff_fuzz")
    honest = bytes([0, 0, 1, 0] * 40)
    for transport in (b"\0", b"\1"):
        seeds.put(transport + honest)
        for at in (4, 8, 16, 24):
            for step in (b"\7\1", b"\7\x40", b"\7\x41", b"\7\x80", b"\2\xff" * 4, b"\5\1\2\0\1", b"\6\1\2\0\1"):
                seeds.put(transport + honest[:at] + step + honest)


def push(folder):
    """An honest push: the blocks in one frame or entry by entry, and the state."""
    seeds = Seeds(folder, "push_fuzz")
    whole = bytes(13)
    seeds.put(whole + b"\1" + bytes(12))
    one = [bytes([0, 0, entry, 3]) + bytes(9) for entry in range(2)]
    seeds.put(b"".join(one) + b"\1" + bytes(12))
    seeds.put(whole + whole)


def safetensors(folder):
    """The header of a real small model over no data, and whole files by the writer."""
    seeds = Seeds(folder, "safetensors_fuzz")
    file = (DATA / "tiny_llama/model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", file[:8])
    header = json.loads(file[8 : 8 + length])
    at = 0
    for name, tensor in header.items():
        if name != "__metadata__":
            tensor.update(dtype="I8", shape=[1, 2], data_offsets=[at, at + 2])
            at += 2
    text = json.dumps(header).encode()
    seeds.put(struct.pack("<Q", len(text)) + text + bytes(at))
    seeds.words(set(strings(header)) | {"F32", "F16", "BF16", "I8", "I32", "I64", "U8", "F8_E4M3", "data_offsets"})


def chat_format(folder):
    seeds = Seeds(folder, "chat_format_fuzz")
    words = set()
    for case in load(DATA / "chat_formats/formats.json")["cases"]:
        seeds.put(json.dumps(case["variables"], ensure_ascii=False))
        words.update(strings(case["variables"]))
    for case in load(DATA / "chat_formats/typescript.json")["cases"]:
        seeds.put(json.dumps({"messages": [], "tools": case["tools"]}, ensure_ascii=False))
        words.update(strings(case["tools"]))
    seeds.words(words)


def main():
    build, folder = Path(sys.argv[1]), Path(sys.argv[2])
    for make in (tokenizer_json, gguf_tokenizer, tiktoken, sentencepiece, http, sse, chat_template, chat_format,
                 output_parser, ordered_json, bodies, configs, handoff, push, safetensors):
        make(folder)
    for room, target in (("wire", "wire_fuzz"), ("engine", "member_fuzz"), ("parallel", "meeting_fuzz")):
        subprocess.run([build / f"src/{room}/{target}_seeds", folder / target], check=True)
    subprocess.run([build / "src/weights/weights_fuzz_seeds", folder], check=True)
    for name in ("gguf", "safetensors"):
        target = folder / f"{name}_fuzz"
        target.mkdir(exist_ok=True)
        for path in sorted((folder / name).iterdir()):
            path.rename(target / path.name)
        (folder / name).rmdir()
    Seeds(folder, "gguf_fuzz").words(["GGUF", "general.alignment", "general.architecture"])


if __name__ == "__main__":
    main()
