"""Writes tests/data/tokenizers/<name>/: small tokenizers and what the library that defines them makes of each text.

Run: /path/to/venv/bin/python tools/goldens/tokenizer_goldens.py [name ...]
Needs PyPI `tokenizers` and `sentencepiece`; versions go into each golden file. Training text: the repository's own
sources and the corpus itself.
"""
import base64
import importlib.metadata
import io
import json
import pathlib
import sys

import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

from tokenizer_corpus import INVALID, TEXTS

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/data/tokenizers"

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
KIMI = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK_LETTERS = (
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbe"
    "ῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ"
    "𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+")
DEEPSEEK_LLM = ["[\r\n]", DEEPSEEK_LETTERS, "\\s?[!-/:-~！-／：-～‘-‟　-。]+", "\\s+$", "[一-龥ࠀ-一가-퟿]+"]
DEEPSEEK_CODER = ["[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+"]
DEEPSEEK_V3 = [
    "\\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def training_text():
    texts = list(TEXTS)
    for pattern in ("src/base/*.h", "src/text/*.h", "src/engine/*.h", "tools/goldens/*.py"):
        for path in sorted(ROOT.glob(pattern)):
            texts += path.read_text().split("\n")
    return texts


def isolated(patterns):
    return [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]


def byte_level(steps, use_regex=False, prefix=False):
    return pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)])


def train(tokenizer, size=900, special=SPECIAL, alphabet=None, **kwargs):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                  initial_alphabet=alphabet or [], **kwargs)
    tokenizer.train_from_iterator(training_text(), trainer)
    return tokenizer


def byte_bpe(pre, normalizer=None, **model):
    t = Tokenizer(models.BPE(**model))
    t.normalizer = normalizer or t.normalizer
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return train(t, alphabet=pre_tokenizers.ByteLevel.alphabet())


def change(tokenizer, edit):
    data = json.loads(tokenizer.to_str())
    edit(data)
    return Tokenizer.from_str(json.dumps(data, ensure_ascii=False))


def gpt2():
    return byte_bpe(pre_tokenizers.ByteLevel(add_prefix_space=False))


def gpt2_prefix():  # RoBERTa's shape: prefix space, added tokens of every kind
    t = byte_bpe(pre_tokenizers.ByteLevel(add_prefix_space=True), unk_token=None)
    t.add_tokens([AddedToken("  wide  ", normalized=False), AddedToken("world", single_word=True),
                  AddedToken("café", normalized=True), AddedToken("\n\n\n", normalized=False)])
    t.add_special_tokens([AddedToken("<mask>", lstrip=True), AddedToken("<sep>", lstrip=True, rstrip=True), AddedToken("<r>", rstrip=True)])
    t.post_processor = processors.RobertaProcessing(("<|im_end|>", 2), ("<|endoftext|>", 0))
    return t


def smollm():
    return byte_bpe(byte_level([pre_tokenizers.Digits(individual_digits=True)], use_regex=True))


def llama3():
    t = byte_bpe(byte_level(isolated([LLAMA3])))

    def edit(d):
        d["model"]["ignore_merges"] = True
        # Tokens that no merge makes: only the whole-word look-up gives them.
        for word in ["Ġlazy", "Ġfrançaise".replace("ç", "Ã§"), "1234"]:
            d["model"]["vocab"].setdefault(word, len(d["model"]["vocab"]))
    t = change(t, edit)
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|endoftext|> $A", pair="<|endoftext|> $A <|endoftext|>:1 $B:1", special_tokens=[("<|endoftext|>", 0)])])
    return t


def qwen2():
    return byte_bpe(byte_level(isolated([QWEN2])), normalizer=normalizers.NFC())


def deepseek_llm():
    return byte_bpe(byte_level(isolated(DEEPSEEK_LLM) + [pre_tokenizers.Digits(individual_digits=True)]))


def deepseek_coder():
    return byte_bpe(byte_level(isolated(DEEPSEEK_CODER) + [pre_tokenizers.Digits(individual_digits=True)]))


def deepseek_v3():
    return byte_bpe(byte_level(isolated(DEEPSEEK_V3)), normalizer=normalizers.Sequence([]))


def kimi():  # class intersection; merges as pairs
    return byte_bpe(byte_level(isolated([KIMI])))


def default_pre():
    return byte_bpe(byte_level(isolated([r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"])))


def llama2():  # characters, byte fallback, no pre-tokenizer
    t = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(vocab_size=1300, special_tokens=special + [f"<0x{b:02X}>" for b in range(256)],
                                  show_progress=False, limit_alphabet=400, max_token_length=12)
    t.train_from_iterator([w for line in training_text() for w in line.split(" ")], trainer)

    def edit(d):
        d["added_tokens"] = [a for a in d["added_tokens"] if a["content"] in special]
    t = change(t, edit)
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return t


def metaspace(scheme, split, fuse):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    t.decoder = decoders.Metaspace(prepend_scheme=scheme, split=split)
    t = train(t, size=700, special=["<unk>", "<s>", "</s>"], limit_alphabet=200, max_token_length=10)
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    return t


def steps():  # many normalisers and splits together
    t = Tokenizer(models.BPE(unk_token="[UNK]"))
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip(True, True),
                                         normalizers.Replace(Regex(r"\s{2,}"), " "), normalizers.Replace("ß", "ss")])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_previous"),
        pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split("e", "merged_with_next"),
        pre_tokenizers.Split(Regex("[aiou]"), "contiguous"), pre_tokenizers.Split("-", "removed")])
    t.decoder = decoders.Fuse()
    t = train(t, size=700, special=["[UNK]"], limit_alphabet=200)
    t.add_tokens([AddedToken("Hello", normalized=True), AddedToken("QUICK", normalized=False)])
    return t


def whitespace():
    t = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Split(Regex(r"\w\b|\h{2}"), "isolated"),
                                               pre_tokenizers.Split(Regex("[xyz]+"), "merged_with_previous", invert=True)])
    t.normalizer = normalizers.NFD()
    t.decoder = decoders.Fuse()
    return train(t, size=500, special=["[UNK]"], limit_alphabet=150)


HF = {
    "gpt2": gpt2, "gpt2_prefix": gpt2_prefix, "smollm": smollm, "llama3": llama3, "qwen2": qwen2,
    "deepseek_llm": deepseek_llm, "deepseek_coder": deepseek_coder, "deepseek_v3": deepseek_v3, "kimi": kimi,
    "default_pre": default_pre, "llama2": llama2, "metaspace_first": lambda: metaspace("first", False, True),
    "metaspace_always": lambda: metaspace("always", True, False), "steps": steps, "whitespace": whitespace,
}


def texts_for(name):
    extra = ["Hello <mask> world", "a  wide  b", "otherworldly world world's", " <sep>  x <r>  y", "the café Café\n\n\n\n", "QUICK quick Hello hello HELLO"]
    return TEXTS + extra


def hf_goldens(name, t):
    cases = []
    for text in texts_for(name):
        ids = t.encode(text).ids
        bare = t.encode(text, add_special_tokens=False).ids
        case = {"text": text, "ids": ids}
        if bare != ids:
            case["bare"] = bare
        t.encode_special_tokens = True
        plain = t.encode(text, add_special_tokens=False).ids
        t.encode_special_tokens = False
        if plain != bare:
            case["plain"] = plain
        decoded = t.decode(bare, skip_special_tokens=False)
        if decoded != text:
            case["decoded"] = decoded
        skipped = t.decode(bare, skip_special_tokens=True)
        if skipped != decoded:
            case["skipped"] = skipped
        cases.append(case)
    invalid = []
    if isinstance(t.decoder, decoders.ByteLevel) and name != "gpt2_prefix":
        alphabet = byte_alphabet()
        for parts in INVALID:
            raw, ids = b"", []
            for part in parts:
                raw += bytes([part]) if isinstance(part, int) else part.encode()
                ids += [t.token_to_id(alphabet[part])] if isinstance(part, int) else t.encode(part, add_special_tokens=False).ids
            invalid.append({"base64": base64.b64encode(raw).decode(), "ids": ids, "decoded": raw.decode("utf-8", "replace")})
    return cases, invalid


def byte_alphabet():
    table = {}
    fresh = 256
    for b in range(256):
        if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE:
            table[b] = chr(b)
        else:
            table[b] = chr(fresh)
            fresh += 1
    assert sorted(table.values()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    return table


def write(folder, name, data):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")


def write_hf(name):
    t = HF[name]()
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(json.loads(t.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")
    cases, invalid = hf_goldens(name, t)
    write(folder, "golden.json", {
        "provenance": f"PyPI tokenizers {importlib.metadata.version('tokenizers')}, tools/goldens/tokenizer_goldens.py",
        "cases": cases, "invalid": invalid})


def write_sentencepiece(name, kind):
    model = io.BytesIO()
    lines = [line for line in training_text() if line.strip()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type=kind, vocab_size=1100, byte_fallback=True,
        character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False,
        user_defined_symbols=["<tool>"], control_symbols=["<ctl>"], hard_vocab_limit=False, minloglevel=2)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    count = sp.get_piece_size()
    types = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 5 if sp.is_unused(i) else
             4 if sp.id_to_piece(i) == "<tool>" else 1 for i in range(count)]
    # The texts without a control symbol's or user-defined symbol's spelling: those are found before the library.
    cases = [{"text": t, "ids": sp.encode(t), "decoded": sp.decode(sp.encode(t))} for t in TEXTS + ["use <tool> now<tool><tool>", "<ctl"]
             if "<s>" not in t and "</s>" not in t]
    write(folder, "golden.json", {
        "provenance": f"PyPI sentencepiece {sentencepiece.__version__}, tools/goldens/tokenizer_goldens.py",
        "pieces": [sp.id_to_piece(i) for i in range(count)], "scores": [sp.get_score(i) for i in range(count)],
        "types": types, "cases": cases})


def main():
    names = sys.argv[1:] or [*HF, "sp_bpe", "sp_unigram"]
    for name in names:
        if name in HF:
            write_hf(name)
        else:
            write_sentencepiece(name, name.removeprefix("sp_"))
        print(name)


if __name__ == "__main__":
    main()
