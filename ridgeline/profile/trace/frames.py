"""Python frames of a trace: which are the user's own, and how they read.

torch.profiler names a frame `path/file.py(12): function`; paths under `sys.path` are shortened,
so library code is told apart by its first folder or by being a standard-library module.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache

LIBRARIES = frozenset(
    {
        "torch",
        "torchvision",
        "torchaudio",
        "transformers",
        "numpy",
        "triton",
        "accelerate",
        "lightning",
        "pytorch_lightning",
        "lightning_fabric",
        "datasets",
        "PIL",
        "pandas",
        "scipy",
        "sympy",
        "tqdm",
        "apex",
        "deepspeed",
        "xformers",
        "timm",
        "einops",
        "diffusers",
        "peft",
        "bitsandbytes",
        "tokenizers",
        "huggingface_hub",
        "flash_attn",
        "ignite",
        "wandb",
        "optree",
        "safetensors",
        "torchmetrics",
        "fairscale",
        "megatron",
        "ray",
    }
)
_FRAME = re.compile(r"^(?P<path>.+)\((?P<line>\d+)\): (?P<function>.+)$", re.DOTALL)
# Code that torch.compile wrote into its cache.
_GENERATED = re.compile(r"torchinductor|(^|[/\\])c[a-z2-7]{40,}\.py$")
_INSTALLED = re.compile(r"(site|dist)-packages[/\\]|[/\\]lib[/\\]python3|[/\\]lib64[/\\]python3")


@lru_cache(maxsize=65536)
def is_user_frame(name: str) -> bool:
    """Whether the frame belongs to the user's program rather than to a library."""
    match = _FRAME.match(name)
    if match is None or name.startswith("<"):
        return False
    path = match["path"]
    if _INSTALLED.search(path) or _GENERATED.search(path):
        return False
    first = re.split(r"[/\\]", path, maxsplit=1)[0]
    module = first.removesuffix(".py")
    return module not in LIBRARIES and module not in sys.stdlib_module_names


def short_name(name: str) -> str:
    """`train.py:12 in step` for a frame name."""
    match = _FRAME.match(name)
    if match is None:
        return name
    file = re.split(r"[/\\]", match["path"])[-1]
    return f"{file}:{match['line']} in {match['function']}"
