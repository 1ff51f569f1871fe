"""Tiny checkpoints as manifests, and golden blobs.

A manifest lists every tensor of a checkpoint: published name, shape, scale and offset. Element i of a tensor is
    offset + scale * uniform(name, i)        in float32: the product is rounded, then the sum
where uniform(name, i) = (top 24 bits of splitmix64(fnv1a64(name) + i)) / 2^23 - 1, in [-1, 1); i counts in row-major order.
Scales and offsets are multiples of 2^-12, so their JSON form is exact.
"""

import json
import math
import pathlib

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[3] / "tests" / "data" / "goldens" / "families"
RULE = (
    "value[i] = offset + scale * uniform(name, i) in float32 (product rounded, then sum); uniform(name, i) = "
    "(splitmix64(fnv1a64(name) + i) >> 40) / 2^23 - 1; i in row-major order"
)


def uniform(name, count):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(h) + np.arange(count, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(40)).astype(np.float64) / 2**23 - 1).astype(np.float32)


def grid(value):
    """The nearest multiple of 2^-12."""
    return round(value * 4096) / 4096


class Manifest:
    """Collects the tensors of one checkpoint."""

    def __init__(self):
        self.tensors = []

    def add(self, name, shape, role, scale, offset=0.0):
        self.tensors.append(
            dict(name=name, shape=list(shape), dtype="F32", role=role, scale=grid(scale), offset=grid(offset))
        )

    def matrix(self, name, rows, columns, gain=1.0, offset=0.0):
        """Outputs of variance gain^2 for inputs of variance 1."""
        self.add(name, (rows, columns), "matrix", gain * math.sqrt(3 / columns), offset)

    def norm(self, name, size):
        self.add(name, (size,), "norm", 0.25, 1.0)

    def write(self, family, config):
        folder = ROOT / family
        folder.mkdir(parents=True, exist_ok=True)
        lines = ",\n  ".join(json.dumps(t) for t in self.tensors)
        head = json.dumps(dict(family=family, rule=RULE))[1:-1]
        (folder / "manifest.json").write_text("{" + head + ', "tensors": [\n  ' + lines + "\n]}\n")
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def load(family):
    """(config, {name: float32 array}) of a written manifest."""
    folder = ROOT / family
    manifest = json.loads((folder / "manifest.json").read_text())
    arrays = {}
    for t in manifest["tensors"]:
        values = np.float32(t["offset"]) + np.float32(t["scale"]) * uniform(t["name"], math.prod(t["shape"]))
        assert values.dtype == np.float32 and t["name"] not in arrays
        arrays[t["name"]] = values.reshape(t["shape"])
    return json.loads((folder / "config.json").read_text()), arrays


def read_blobs(folder):
    """(index, {name: array}) of what write_blobs wrote."""
    index = json.loads((folder / "index.json").read_text())
    kinds = {"F32": "<f4", "I32": "<i4"}
    return index, {
        n: np.fromfile(folder / a["file"], kinds[a["dtype"]]).reshape(a["shape"]) for n, a in index["arrays"].items()
    }


def apart(a, b):
    """Relative L2 distance."""
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def write_blobs(folder, arrays, extra):
    """One little-endian file per array (float32 or int32) and index.json beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.bin"):
        old.unlink()
    index = dict(extra, arrays={})
    for name, array in arrays.items():
        is_int = np.issubdtype(array.dtype, np.integer)
        data = np.ascontiguousarray(array, dtype="<i4" if is_int else "<f4")
        assert data.nbytes < 200_000, (name, data.nbytes)
        (folder / f"{name}.bin").write_bytes(data.tobytes())
        index["arrays"][name] = dict(file=f"{name}.bin", shape=list(data.shape), dtype="I32" if is_int else "F32")
    (folder / "index.json").write_text(json.dumps(index, indent=1) + "\n")


def prompt(number, tokens):
    """Prompt `number`: ids in [3, 256), the same everywhere."""
    return (3 + (np.floor((uniform(f"prompt.{number}", tokens).astype(np.float64) + 1) / 2 * 253))).astype(np.int64)
