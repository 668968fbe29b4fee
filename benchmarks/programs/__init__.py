"""Public kinds of PyTorch programs, written by us in the style of their authors.

Each file is one program that imports its framework from `switch`, so that the same text runs over
torch and over ridgeline. It has `DEFAULT` and `SMALL` sizes, and `make(sizes)`, which builds the
model, the data and the optimizer and gives `step(number)`: what the author's loop does once, with
the loss as its result; a second program of a file is its `make_NAME`. `compiled` marks the
functions that a user would put under `jit`.
"""

from __future__ import annotations

NAMES = (
    "nanogpt", "nanogpt:generate", "mnist", "dcgan", "vae", "word_lm", "actor_critic", "gcn",
    "ddpm", "lora", "llama2c", "vit", "selective_scan", "gru_ctc", "mixture_of_experts", "pinn",
    "maml", "quantile_regression",
)  # fmt: skip
