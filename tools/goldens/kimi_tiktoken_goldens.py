"""Kimi's tokenizer against PyPI `tiktoken`, which defines it.

Writes src/text/tokenizer/kimi_unicode_data.h and, under tests/data/tokenizers/kimi_tiktoken/, tiktoken.model (a small
vocabulary, trained here), tokenizer_config.json and the golden files. With --real FOLDER (one that holds the published
tiktoken.model, see kimi_ranks.py) also the ids of that vocabulary.

Run: /path/to/venv/bin/python tools/goldens/kimi_tiktoken_goldens.py [--real FOLDER]
Needs PyPI `tiktoken` and `tokenizers` (the trainer only).

What is written down here from the checkpoint's tokenization_kimi.py (moonshotai/Kimi-K3 at f831ab6): the pattern; 256
special ids behind the ranks, the unnamed ones called <|reserved_token_ID|>; a text is cut in parts of 400,000
characters, and inside of these after each 25,000 characters of a run that is all str.isspace() or all not; every piece
is encoded alone. Called with keywords (as servers do) the named added tokens are found before all that.
"""
import argparse
import base64
import ctypes
import hashlib
import importlib.metadata
import itertools
import json
import pathlib
import re
import sys

import tiktoken
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from tokenizer_corpus import INVALID, KIMI_TEXTS, TEXTS
from tokenizer_goldens import KIMI, byte_alphabet

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/data/tokenizers/kimi_tiktoken"
HEADER = ROOT / "src/text/tokenizer/kimi_unicode_data.h"
RANKS = 3000
RESERVED = 256
# Kimi K3's and K2.5's names by their place behind the ranks (tokenizer_config.json of both): K3's where they differ,
# with K2.5's <think> pair, so that one folder has every kind of token.
NAMES = {0: "[BOS]", 1: "[EOS]", 2: "<|end_of_msg|>", 3: "<|open|>", 4: "<|close|>", 5: "<|sep|>", 6: "[start_header_id]",
         7: "[end_header_id]", 9: "[EOT]", 18: "<|media_begin|>", 19: "<|media_content|>", 20: "<|media_end|>",
         21: "<|media_pad|>", 22: "<think>", 23: "</think>", 65: "<osagent_mode>", 254: "[UNK]", 255: "[PAD]"}
NOT_SPECIAL = {"<|open|>", "<|close|>", "<|sep|>", "<think>", "</think>"}
BYTES = {bytes([b]): b for b in range(256)}
SCALARS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
EVERYTHING = "".join(map(chr, SCALARS))
SETS = {"han": r"[\p{Han}]", "upper": r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]",
        "lower": r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", "number": r"\p{N}", "letter": r"\p{L}", "space": r"\s"}


def probe(pattern):
    """The characters that tiktoken's own engine matches: what no match covers is in no token."""
    engine = tiktoken.Encoding("probe", pat_str=pattern, mergeable_ranks=BYTES, special_tokens={})
    found, step = set(), 50_000
    for at in range(0, len(EVERYTHING), step):
        found |= set(map(ord, bytes(engine.encode_ordinary(EVERYTHING[at:at + step])).decode()))
    return found


def ranges(points):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def flags(c, sets):
    return sum(1 << bit for bit, name in enumerate(SETS) if c in sets[name])


# How src/text/tokenizer/kimi_classes.cc reads utf8proc's general categories (their numbers in utf8proc.h).
LU, LL, LT, LM, LO, MN, ME, NO = 1, 2, 3, 4, 5, 6, 8, 11


def utf8proc_flags(c, library, sets):
    """What utf8proc alone would say; it knows no scripts, so Han comes from the table."""
    kind, han = library.utf8proc_category(c), c in sets["han"]
    mark, both = MN <= kind <= ME, kind in (LM, LO) or MN <= kind <= ME
    values = {"han": han, "upper": (kind in (LU, LT) or both) and not han, "lower": (kind == LL or both) and not han,
              "number": ME < kind <= NO, "letter": LU <= kind <= LO, "space": c in sets["space"]}
    assert not (mark and values["letter"])
    return sum(1 << bit for bit, name in enumerate(SETS) if values[name])


def write_header(sets):
    library = ctypes.CDLL("libutf8proc.so.2")  # Debian 12: 2.8.0, Unicode 15.0; tiktoken's engine: Unicode 16.0
    later = []
    for c in SCALARS:
        value = flags(c, sets)
        if value == utf8proc_flags(c, library, sets):
            continue
        if later and later[-1][1] == c - 1 and later[-1][2] == value:
            later[-1][1] = c
        else:
            later.append([c, c, value])
    tiktoken_version = importlib.metadata.version("tiktoken")
    lines = ["// Script=Han, and the characters whose class utf8proc 2.8 (Unicode 15.0) doesn't know. Written by",
             f"// tools/goldens/kimi_tiktoken_goldens.py from what PyPI tiktoken {tiktoken_version} matches.", "#pragma once", "",
             "#include <cstdint>", "", "namespace baton::text::kimi_data {", "",
             "struct Range {", "  int32_t first, last;", "};", "inline constexpr Range kHan[] = {"]
    lines += [f"    {{0x{a:04X}, 0x{b:04X}}}," for a, b in ranges(sets["han"])]
    lines += ["};", "", "// `flags`: a KimiClass.", "struct LaterRange {", "  int32_t first, last;", "  uint8_t flags;", "};",
              "inline constexpr LaterRange kLater[] = {"]
    lines += [f"    {{0x{a:04X}, 0x{b:04X}, {v}}}," for a, b, v in later]
    lines += ["};", "", "}  // namespace baton::text::kimi_data", ""]
    HEADER.write_text("\n".join(lines))


def write_classes(sets):
    """A digest of every character's flags, so that the table in C++ is proven whole."""
    digest = hashlib.sha256(bytes(flags(c, sets) for c in SCALARS)).hexdigest()
    by_plane = {}
    for c in SCALARS:
        by_plane.setdefault(c >> 12, bytearray()).append(flags(c, sets))
    return {"flags": list(SETS), "all": digest, "counts": {name: len(points) for name, points in sets.items()},
            "by_4096": {f"{k:x}": hashlib.sha256(v).hexdigest()[:16] for k, v in by_plane.items()}}


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(KIMI), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=RANKS, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    # The texts themselves, so that the file stays the same while the repository grows.
    alice = (ROOT / "tools/goldens/alice.txt").read_text().split("\n")
    tokenizer.train_from_iterator(TEXTS + KIMI_TEXTS + alice, trainer)
    back = {spelling: byte for byte, spelling in byte_alphabet().items()}
    by_id = sorted((id, word) for word, id in tokenizer.get_vocab().items())
    words = [bytes(back[c] for c in word) for _, word in by_id]
    # The alphabet first, as in the published file; then the merges in order.
    words = [w for w in words if len(w) == 1] + [w for w in words if len(w) > 1]
    # A token that no merge makes: the look-up of the whole piece alone gives it.
    words += [w.encode() for w in (" otherworldly", "公园吧", "1234") if w.encode() not in words]
    return {word: rank for rank, word in enumerate(words)}


def write_vocabulary(ranks):
    (OUT / "tiktoken.model").write_text("".join(f"{base64.b64encode(w).decode()} {r}\n" for w, r in ranks.items()))
    config = {
        "added_tokens_decoder": {str(len(ranks) + k): {"content": v, "lstrip": False, "normalized": False, "rstrip": False,
                                                       "single_word": False, "special": v not in NOT_SPECIAL} for k, v in NAMES.items()},
        "additional_special_tokens": [v for v in NAMES.values() if v not in NOT_SPECIAL | {"[BOS]", "[EOS]", "[UNK]", "[PAD]"}],
        "bos_token": "[BOS]", "eos_token": "[EOS]", "unk_token": "[UNK]", "pad_token": "[PAD]",
        "clean_up_tokenization_spaces": False, "model_max_length": 1048576, "tokenizer_class": "TikTokenTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]}}
    (OUT / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


class Kimi:
    """tiktoken under the documented cuts."""

    def __init__(self, ranks):
        count = len(ranks)
        self.special = {NAMES.get(i, f"<|reserved_token_{count + i}|>"): count + i for i in range(RESERVED)}
        self.named = re.compile("|".join(re.escape(v) for v in NAMES.values()))
        self.engine = tiktoken.Encoding("kimi", pat_str=KIMI, mergeable_ranks=ranks, special_tokens=self.special)

    @staticmethod
    def cuts(text):
        for begin in range(0, len(text), 400_000):
            part = text[begin:begin + 400_000]
            start = run = 0
            before = None
            for at, character in enumerate(part):
                space = character.isspace()
                run = run + 1 if space == before else 1
                before = space
                if run > 25_000:
                    yield part[start:at]
                    start, run = at, 1
            yield part[start:]

    def plain(self, text):
        return [id for part in self.cuts(text) for id in self.engine.encode(part, disallowed_special=())]

    def parsed(self, text):
        ids, at = [], 0
        for match in [*self.named.finditer(text), None]:
            gap = text[at:match.start() if match else len(text)]
            for part in self.cuts(gap):
                ids += self.engine.encode(part, allowed_special="all")
            if match:
                ids.append(self.special[match.group()])
                at = match.end()
        return ids


LONG = [[["a", 26_000]], [["a", 24_998], ["[BOS]", 1], ["b", 10]], [["a", 24_998], ["<|reserved_token_3010|>", 1]],
        [["a", 24_990], ["<|reserved_token_3010|>", 1], ["b", 10]], [[" ", 60_000], ["x", 1]], [["x", 1], [" ", 25_001], ["y", 3]],
        [["\x1c", 25_002]], [["\x1c", 12_501], [" ", 12_502], ["z", 2]], [["好", 25_001]], [["Hello world ", 34_000]],
        [["ab ", 133_333], ["[EOS]", 1], ["cd ", 9]], [["\n", 25_003], ["a", 1]], [["é", 400_001]], [["a", 20_000], ["[BOS]", 1], ["b", 10_000]],
        [["1", 50_001]], [["'s", 13_000]], [["\u3000", 25_001], ["中", 2]]]
ATOMS = ["a", "A", "ǅ", "ʰ", "中", "々", "〇", "⺀", "あ", "\u0301", "1", "²", " ", "\t", "\n", "\r", "\u3000", "!", "/", "'", "s", "ſ", "l", "E", "r", "\x1c"]
DEPTH = 4


def exhaustive(cut):
    """One digest per first atom of how every string of up to DEPTH atoms is cut: the byte lengths of its pieces."""
    digests = {}
    for first in ATOMS:
        digest = hashlib.sha256()
        for count in range(DEPTH):
            for rest in itertools.product(ATOMS, repeat=count):
                digest.update(bytes(map(len, cut(first + "".join(rest)))) + b"\0")
        digests[first] = digest.hexdigest()
    return digests


def make_splitter():
    """tiktoken doesn't tell its pieces: over single bytes and with an anchored pattern, the first one is what it encodes."""
    engine = tiktoken.Encoding("pieces", pat_str=r"\A(?:" + KIMI + ")", mergeable_ranks=BYTES, special_tokens={})

    def cut(text):
        raw, out = text.encode(), []
        while raw:
            size = len(engine.encode_ordinary(raw.decode()))
            assert size > 0
            out.append(raw[:size])
            raw = raw[size:]
        return out
    return cut


def cases(kimi, texts, with_plain=True):
    out = []
    for text in texts:
        case = {"text": text, "ids": kimi.parsed(text)}
        plain = kimi.plain(text)
        if with_plain and plain != case["ids"]:
            case["plain"] = plain
        out.append(case)
    return out


def digest_of(ids):
    return hashlib.sha256(b"".join(i.to_bytes(4, "little") for i in ids)).hexdigest()


def long_cases(kimi):
    out = []
    for parts in LONG:
        text = "".join(word * count for word, count in parts)
        parsed, plain = kimi.parsed(text), kimi.plain(text)
        out.append({"parts": parts, "count": len(parsed), "sha256": digest_of(parsed), "plain_count": len(plain), "plain_sha256": digest_of(plain)})
    return out


def invalid_cases(kimi, ranks):
    out = []
    for parts in INVALID:
        raw, ids = b"", []
        for part in parts:
            raw += bytes([part]) if isinstance(part, int) else part.encode()
            ids += [ranks[bytes([part])]] if isinstance(part, int) else kimi.plain(part)
        out.append({"base64": base64.b64encode(raw).decode(), "ids": ids, "decoded": kimi.engine.decode(ids)})
    return out


def write(name, data):
    data = {"provenance": f"PyPI tiktoken {importlib.metadata.version('tiktoken')}, tools/goldens/kimi_tiktoken_goldens.py", **data}
    (OUT / name).write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")


def read_ranks(path):
    lines = (line.split() for line in path.read_text().splitlines() if line)
    return {base64.b64decode(word): int(rank) for word, rank in lines}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--real", type=pathlib.Path)
    options = options.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    texts = TEXTS + KIMI_TEXTS
    sets = {name: probe(pattern) for name, pattern in SETS.items()}
    write_header(sets)
    ranks = train()
    write_vocabulary(ranks)
    kimi = Kimi(ranks)
    write("golden.json", {"ranks": len(ranks), "cases": cases(kimi, texts), "invalid": invalid_cases(kimi, ranks), "long": long_cases(kimi)})
    write("split.json", {"classes": write_classes(sets), "atoms": ATOMS, "depth": DEPTH, "exhaustive": exhaustive(make_splitter())})
    if options.real:
        path = options.real / "tiktoken.model"
        sha = hashlib.sha256(path.read_bytes()).hexdigest()
        real = Kimi(read_ranks(path))
        published = {"text": "Hello, world! 你好，世界！", "ids": [19180, 11, 2695, 0, 220, 33845, 378, 2243, 856]}
        assert real.plain(published["text"]) == published["ids"]
        write("real.json", {"file_sha256": sha, "cases": cases(real, texts), "long": long_cases(real)})
    print(len(ranks), "ranks,", len(texts), "texts", file=sys.stderr)


if __name__ == "__main__":
    main()
