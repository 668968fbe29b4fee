"""Families of models as tables: which setting each part is, and how files call the weights."""

from __future__ import annotations

from ridgeline.models.families.decoders import DECODERS
from ridgeline.models.families.encoders import ENCODERS
from ridgeline.models.families.family import Family
from ridgeline.models.families.others import OTHERS
from ridgeline.models.families.sequences import SEQUENCES
from ridgeline.models.families.vision import VISION

FAMILIES: dict[str, Family] = {**DECODERS, **ENCODERS, **VISION, **SEQUENCES, **OTHERS}
