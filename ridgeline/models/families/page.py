"""The page about the families, from their tables."""

from __future__ import annotations

from ridgeline.models.families import FAMILIES
from ridgeline.models.families.common import ROPE_KINDS
from ridgeline.models.feed_forward import ACTIVATIONS

INTRODUCTION = f"""# Models of others

`rl.models.from_pretrained(folder)` reads a folder with Hugging Face's `config.json` and weights
(`model.safetensors` or `pytorch_model.bin`, also in several files with an index; no code of a file
runs). The setting `model_type` chooses the family, `architectures` the form: with which head.

```python
model = rl.models.from_pretrained("Qwen2.5-0.5B")  # in evaluation mode, in the files' dtype
scores = model(tokens, mask)                  # mask [batch, length]: 1 at tokens that count
text = rl.models.generate(model, tokens, 20)  # one compiled step for every position
model.save_pretrained("mine")                 # the same files again
```

A setting that changes what is computed and is not supported is refused by its name. Rotary
positions: {", ".join(ROPE_KINDS)}. Activations: {", ".join(ACTIVATIONS)}.

This page is written by `python -m ridgeline.models.families`; GPT-2, Llama, BERT, ViT and ResNet
also have classes of their own, to be trained from the start.

| `model_type` | classes | only with |
|---|---|---|
"""


def page() -> str:
    """All of it."""
    rows = []
    for name, family in FAMILIES.items():
        stem, *rest = family.forms
        classes = ", ".join([stem, *(other.removeprefix(family.stem) for other in rest)])
        limits = ", ".join(
            f"`{setting}` = {' or '.join(map(repr, values))}"
            for setting, values in family.fixed.items()
        )
        rows.append(f"| `{name}` | {classes} | {limits} |")
    return INTRODUCTION + "\n".join(rows) + "\n"
