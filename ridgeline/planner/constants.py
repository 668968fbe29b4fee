"""The numbers that data sheets do not say, each with one meaning for all machines and programs.

They are fitted on published runs (`validation.py` fits them again without each group of runs to see
how they do on runs they have not seen) and stay inside the bounds that physics gives them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class Constants:
    """Shares of peaks that sustained work reaches, and what large jobs lose."""

    ampere: float = 0.82
    """Of the peak of 16-bit products, what a large one reaches on A100s and older GPUs."""
    hopper: float = 0.7
    """The same on H100s and H200s, whose clock their power bounds."""
    blackwell: float = 0.72
    """The same on B200s and their kin."""
    narrow: float = 0.96
    """What float8 products reach of that share: twice the rate leaves half the time to feed it."""
    attention: float = 0.8
    """What fused attention reaches of what a large product does, forwards."""
    memory: float = 0.78
    """Of the memory's bandwidth, what passes over tensors reach."""
    link: float = 0.79
    """Of the links inside a node, what collectives reach."""
    network: float = 0.85
    """Of the network, what collectives reach."""
    contention: float = 0.4
    """Of the time of traffic behind products, what it costs them."""
    host: float = 0.05
    """Seconds of a step in which GPUs wait for their hosts."""
    spread: float = 0.012
    """By how much steps grow with each doubling of nodes, which wait for the slowest."""

    def moved(self, name: str, factor: float) -> Constants:
        """These with one multiplied."""
        return replace(self, **{name: getattr(self, name) * factor})


NAMES = tuple(field.name for field in fields(Constants))
PRIOR = Constants()
"""What data sheets, papers and an H200 say, before any published run."""
DEFAULT = Constants(
    ampere=0.817, hopper=0.696, blackwell=0.686, narrow=0.964, attention=0.738, memory=0.802,
    link=0.805, network=0.906, contention=0.58, host=0.0479, spread=0.0138,
)  # fmt: skip
"""What `ridgeline plan --validate --refit` prints: fitted on all rows of the published runs."""
# How far each may be from the values above, as a logarithm: little for what was measured on an H200
# (`hopper`, `narrow`), more for what was read of data sheets and papers.
SPREADS = {
    "ampere": 0.08, "hopper": 0.03, "blackwell": 0.10, "narrow": 0.04, "attention": 0.10,
    "memory": 0.10, "link": 0.10, "network": 0.15, "contention": 0.4, "host": 0.5, "spread": 0.4,
}  # fmt: skip
