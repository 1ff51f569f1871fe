#!/usr/bin/env python3
"""Runs the released transformers classes on the tiny checkpoints and compares them with the goldens:

    python check_transformers.py [family...]        needs torch, transformers, safetensors (CPU is enough)

Each checkpoint is written as a folder in its published layout and loaded by from_pretrained, once in float32 and once in
float64; compared are the hidden states after every layer, the logits, the routed experts and the selected positions. What
the float32 run gives for the long prompt goes to <family>/transformers/.
"""

import json
import sys
import tempfile

import numpy as np
import safetensors.numpy
import torch
import transformers

from tiny import ROOT, apart, load, read_blobs, write_blobs

CLASSES = {
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "deepseek_v32_options": "GlmMoeDsaForCausalLM",  # the class that rotates index keys in pairs and shares choices
    "kimi_k25": "Kimi_K25ForConditionalGeneration",
    "kimi_linear": "KimiLinearForCausalLM",
}


def build(family, dtype):
    config, arrays = load(family)
    if CLASSES[family].startswith("Glm"):
        config = dict(config, model_type="glm_moe_dsa")
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/config.json", "w") as file:
            json.dump(config, file)
        safetensors.numpy.save_file(arrays, f"{folder}/model.safetensors", metadata={"format": "pt"})
        cls = getattr(transformers, CLASSES[family])
        model, report = cls.from_pretrained(
            folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager", output_loading_info=True
        )
    missing = {
        key: [n for n in value if "vision" not in n and "multi_modal" not in n and "projector" not in n]
        for key, value in report.items()
        if value
    }
    print("    not loaded:", {k: v for k, v in missing.items() if v} or "nothing")
    return model.eval()


def run(model, ids):
    """(after each layer, logits, {layer: experts in ascending order}, {layer: selected positions})."""
    layers, experts, selected = {}, {}, {}
    decoder = next(m for n, m in model.named_modules() if hasattr(m, "layers") and hasattr(m, "embed_tokens"))
    hooks = []
    for i, layer in enumerate(decoder.layers):

        def keep(_, __, output, i=i):
            layers[i] = (output[0] if isinstance(output, tuple) else output).detach()[0].double().numpy()

        hooks.append(layer.register_forward_hook(keep))
        for name, module in layer.named_modules():
            if name.endswith("experts") and "shared" not in name:

                def routed(_, args, i=i):
                    experts[i] = np.sort(next(a for a in args if not a.is_floating_point()).numpy(), axis=-1)

                hooks.append(module.register_forward_pre_hook(routed))
            if name.endswith("indexer"):

                def chosen(_, __, output, i=i):
                    selected[i] = (output[0] if isinstance(output, tuple) else output)[0].numpy()

                hooks.append(module.register_forward_hook(chosen))
    with torch.no_grad():
        logits = model(input_ids=torch.tensor(ids[None].astype(np.int64)), use_cache=False).logits[0].double().numpy()
    for hook in hooks:
        hook.remove()
    return np.stack([layers[i] for i in sorted(layers)]), logits, experts, selected


def same_selected(found, expected, topk):
    """Per row the first min(topk, t + 1) positions that lie in the past, as a set."""
    for row, want in zip(found, expected):
        want = {p for p in want.tolist() if p >= 0}
        if not want <= set(row.tolist()):
            return False
    return found.shape[-1] <= topk


def compare(family, case, model):
    index, want = read_blobs(ROOT / family / case)
    layers, logits, experts, selected = run(model, want["ids"])
    per_layer = ", ".join("%.1e" % apart(a, b) for a, b in zip(layers, want["layers"]))
    text = f"    {case}: layers {per_layer}; logits {apart(logits, want['logits']):.1e}"
    mine = np.sort(want["experts"], axis=-1)
    text += f"; experts equal {all(np.array_equal(experts[i], m) for i, m in zip(sorted(experts), mine))}"
    if selected:
        rows = dict(zip(index["layers_of"]["selected"], want["selected"]))
        text += f"; selected equal {all(same_selected(found, rows[i], rows[i].shape[-1]) for i, found in selected.items())}"
    print(text)
    return dict(ids=want["ids"], layers=layers, logits=logits)


def main():
    versions = dict(torch=torch.__version__, transformers=transformers.__version__)
    print(*versions.items(), "numpy", np.__version__)
    torch.set_num_threads(1)
    for family in sys.argv[1:] or CLASSES:
        for dtype in (torch.float32, torch.float64):
            print(family, CLASSES[family], dtype)
            model = build(family, dtype)
            arrays = [compare(family, case, model) for case in ("long", "short")][0]
            if dtype == torch.float32:
                extra = dict(
                    family=family,
                    case="long",
                    made_by="tools/goldens/families/check_transformers.py",
                    reference=CLASSES[family],
                    dtype="float32",
                    **versions,
                )
                write_blobs(ROOT / family / "transformers", arrays, extra)


if __name__ == "__main__":
    main()
