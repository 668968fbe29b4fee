"""Generators and seeds, as in torch.random; a draw is in `functions/random.py`."""

from ridgeline.functions.random import (
    Generator as Generator,
    default_generator as default_generator,
    fork_rng as fork_rng,
    get_rng_state as get_rng_state,
    initial_seed as initial_seed,
    manual_seed as manual_seed,
    seed as seed,
    set_rng_state as set_rng_state,
)
from ridgeline.reference import describe as _describe

_describe("random", {"fork_rng": fork_rng})
