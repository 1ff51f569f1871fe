"""Writes tests/data/tokenizers/unicode.json (CPython: decoding with errors="replace", normal forms, lower case) and
regex.json (PyPI `tokenizers`, that is Oniguruma: how patterns cut texts).

Run: /path/to/venv/bin/python tools/goldens/unicode_regex_goldens.py
"""
import base64
import importlib.metadata
import json
import pathlib
import platform
import random
import unicodedata

from tokenizers import Regex, pre_tokenizers

from tokenizer_corpus import TEXTS

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/data/tokenizers"

PATTERNS = [
    r"\s", r"\S+", r"\w+", r"\W+", r"\d+", r"\D+", r"\h+", r"\H+", r"\b", r"\B", r"\bt", r"\s+$", r"^\s+", r"$", r"^.", r".+", r"(?m).+",
    r"(?i)HELLO", r"(?i:'s|'t)", r"(?-i:a)", r"[\s\d]+", r"[^\s\w]+", r"[\w-]+", r"[a-c\-]+", r"[-a]+", r"[a-]+", r"[a\]b]+", r"[]a]+", r"[^]a]+",
    r"[\p{L}&&[^a-m]]+", r"[\p{L}&&\p{Lu}]+", r"[[a-f][0-9]]+", r"[^[a-f]0-9]+", r"[\p{L}\p{M}&&[^\p{Han}]]+", r"[\p{Han}\p{Hiragana}\p{Katakana}]+",
    r"\p{Lu}\p{Ll}+", r"\P{L}+", r"\p{^L}+", r"[\p{^L}]", r"\p{Alpha}+", r"\p{Space}", r"\p{Upper}", r"\p{Lower}+", r"\p{Letter}", r"\p{Punctuation}", r"\p{Greek}+", r"\p{Arabic}+",
    r"\u00e9", r"[\u0400-\u04ff]+", r"\x{1F600}", r"\x41", r"[\x{4e00}-\x{9fff}]+", r"a{2}", r"a{2,}", r"a{,3}", r"a{1,3}", r"{", r"a{", r"a{x}", r"a{2,3}?",
    r"a++", r"a*+", r"a?+", r"a+?", r"(?>a+)b", r"(?=[A-Z])", r"(?<=\s)\S", r"(?<!\w)\d+", r"(\w)\1", r"(?<c>\w)\k<c>", r"\R", r"\n", r"\t+", r"\v", r"\.", r"\$\d", r"x*", r"|a", r"(?:)", r"[.]", r"[$^]",
    r"[\r\n]+", r"[^\r\n]+", r"\A.", r".\z", r".\Z", r"(?x) a b # c", r"[\S]+", r"[^\S]+", r"[\d\D]+", r"[\w\W]", r"[\h]+", r"(?<![\s])[\s]+", r"-[a-z]", r"[a-z0-9._%+-]+@[a-z0-9.-]+",
    r"[!-/:-~]+", r"[--/]+", r"[+--]+", r"[a-z&&[^aeiou]]+", r"[^a-z&&[aeiou]]+", r"[a-z&&[^aeiou]&&[^x-z]]+", r"[\n\t ]+", r"[\p{P}$+<=>^`|~]", r"(?i)straße|STRASSE", r"(?i)ſ", r"(?i:k)",
]


def unicode_goldens():
    rng = random.Random(7)
    atoms = [b"a", b" ", "é".encode(), "你".encode(), "😀".encode(), b"\xff", b"\xc3", b"\xe4\xbd", b"\xf0\x9f", b"\xf0\x9f\x98",
             b"\x80", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80", b"\xf8\x88"]
    replace = []
    for i in range(400):
        raw = b"".join(rng.choice(atoms) for _ in range(rng.randint(1, 8))) if i % 2 else rng.randbytes(rng.randint(1, 12))
        replace.append([base64.b64encode(raw).decode(), raw.decode("utf-8", "replace")])
    pool = [chr(c) for c in range(0x20, 0x3100) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    pool += list("가각힣ㄱ각ﬁﬃＡ１ｶﾞ㌀㎏①²Å豈\U0002F800𝟘𝓦") + ["\u0301", "\u0323", "\u0307", "\u0345", "\u1161", "\u11a8"] * 40
    forms = []
    for text in TEXTS + ["".join(rng.choice(pool) for _ in range(rng.randint(1, 12))) for _ in range(300)]:
        row = {"text": text}
        for form in ("NFC", "NFD", "NFKC", "NFKD"):
            if (out := unicodedata.normalize(form, text)) != text:
                row[form] = out
        # Character by character, as Rust's char::to_lowercase (no final-sigma rule).
        if (lower := "".join(c.lower() for c in text)) != text:
            row["lower"] = lower
        forms.append(row)
    return {"provenance": f"CPython {platform.python_version()}, Unicode {unicodedata.unidata_version}, tools/goldens/unicode_regex_goldens.py",
            "replace": replace, "forms": forms}


def regex_goldens():
    texts = [t for t in TEXTS if len(t) < 60]
    rows = []
    for pattern in PATTERNS:
        try:
            split = pre_tokenizers.Split(Regex(pattern), "isolated")
        except Exception as error:  # the library has no such pattern either
            rows.append({"pattern": pattern, "error": str(error)})
            continue
        # Ends of pieces in bytes; texts that stay whole are left out.
        cuts = {}
        for i, text in enumerate(texts):
            ends, at = [], 0
            for piece, _ in split.pre_tokenize_str(text):
                at += len(piece.encode())
                ends.append(at)
            if len(ends) > 1:
                cuts[str(i)] = ends
        rows.append({"pattern": pattern, "cuts": cuts})
    return {"provenance": f"PyPI tokenizers {importlib.metadata.version('tokenizers')}, tools/goldens/unicode_regex_goldens.py",
            "texts": texts, "rows": rows}


def write(name, data):
    (OUT / name).write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")


write("unicode.json", unicode_goldens())
write("regex.json", regex_goldens())
