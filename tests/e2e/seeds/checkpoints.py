"""Small checkpoints that stand for those the documents name: same architecture, same quantisation, same layer count where
a document splits layers by number. Their sizes are data (checkpoints/*.json); each is made once by `baton make-checkpoint`
and `baton quantize`, into a folder whose name carries a digest of the sizes, so that a changed file makes a new one.

Run: checkpoints.py [NAME...] makes them and prints their folders.
"""
import base64
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE / "checkpoints"
ROOT = HERE.parent.parent.parent
BATON = os.environ.get("BATON_BINARY", str(ROOT / "build/release/src/apps/baton"))
# Counts what this file does to a checkpoint beyond the data: a new way, a new folder.
MAKER_REVISION = 1
MAKE_SECONDS = 600

# The ids behind the ranks, in the order in which Kimi's checkpoints name them (tokenizer_config.json of K2 and of K3).
KIMI_SPECIAL = {
    "kimi_k2": {0: "[BOS]", 1: "[EOS]", 2: "<|im_end|>", 3: "<|im_user|>", 4: "<|im_assistant|>",
                6: "<|start_header_id|>", 7: "<|end_header_id|>", 9: "[EOT]", 10: "<|im_system|>",
                11: "<|tool_calls_section_begin|>", 12: "<|tool_calls_section_end|>", 13: "<|tool_call_begin|>",
                14: "<|tool_call_argument_begin|>", 15: "<|tool_call_end|>", 17: "<|im_middle|>",
                22: "<think>", 23: "</think>"},
    "kimi_k3": {0: "[BOS]", 1: "[EOS]", 2: "<|end_of_msg|>", 3: "<|open|>", 4: "<|close|>", 5: "<|sep|>"},
}
BYTES = 256  # ranks of the small vocabulary: one per byte
SPECIAL = 256  # ids that Kimi's tokenizer appends to the ranks


def names():
    return sorted(path.stem for path in DATA.glob("*.json"))


def description(name):
    return json.loads((DATA / f"{name}.json").read_text())


def key(spec):
    text = json.dumps([MAKER_REVISION, spec], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def write_kimi_tokenizer(folder, kind, vocab):
    """tiktoken.model of the 256 bytes, tokenizer_config.json with the family's special ids behind them."""
    if vocab < BYTES + SPECIAL:
        raise ValueError(f"{kind}: a vocabulary of {vocab} is too small for {BYTES} bytes and {SPECIAL} special ids")
    special = KIMI_SPECIAL[kind]
    ranks = "".join(f"{base64.b64encode(bytes([b])).decode()} {b}\n" for b in range(BYTES))
    end = special[2]
    config = {"added_tokens_decoder": {str(BYTES + i): {"content": text, "special": i < 3 or kind == "kimi_k2"}
                                       for i, text in special.items()},
              "bos_token": "[BOS]", "eos_token": end, "additional_special_tokens": [special[2]],
              "tokenizer_class": "TikTokenTokenizer"}
    (folder / "tokenizer.json").unlink()
    (folder / "tiktoken.model").write_text(ranks)
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))
    ids = {"bos_token_id": BYTES, "eos_token_id": BYTES + 2}
    (folder / "generation_config.json").write_text(json.dumps(ids))
    path = folder / "config.json"
    model = json.loads(path.read_text())
    for settings in (model, model.get("text_config", {})):
        settings.update({name: value for name, value in ids.items() if name in settings})
    path.write_text(json.dumps(model, indent=1))


def run(words):
    ended = subprocess.run([BATON, *words], capture_output=True, text=True, timeout=MAKE_SECONDS)
    if ended.returncode != 0:
        raise RuntimeError(f"baton {' '.join(words)} ended with {ended.returncode}:\n{ended.stderr}")


def make(name, root):
    """The folder of checkpoint `name` under `root`; made if it isn't there."""
    spec = description(name)
    root = pathlib.Path(root)
    folder = root / f"{name}-{key(spec)}"
    if (folder / "config.json").exists():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=root) as scratch:
        plain, made = pathlib.Path(scratch) / "plain", pathlib.Path(scratch) / "made"
        sizes = [word for flag, value in spec["sizes"].items() for word in (f"--{flag}", str(value))]
        run(["make-checkpoint", "--arch", spec["arch"], "--out", str(plain), "--seed", str(spec["seed"]), *sizes])
        if spec["tokenizer"] != "small":
            write_kimi_tokenizer(plain, spec["tokenizer"], spec["sizes"]["vocab"])
        run(["quantize", str(plain), str(made), "--scheme", spec["scheme"]])
        try:
            os.rename(made, folder)
        except OSError:  # another run made it meanwhile
            if not (folder / "config.json").exists():
                raise
    return folder


def default_root():
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "baton/seeds"


def folder_bytes(folder):
    return sum(path.stat().st_size for path in pathlib.Path(folder).iterdir())


if __name__ == "__main__":
    for wanted in sys.argv[1:] or names():
        made_at = make(wanted, default_root())
        print(f"{made_at}  {folder_bytes(made_at) / 1e6:.0f} MB: {description(wanted)['stands_for']}")
