"""Families of models as tables: which setting each part is, and how files call the weights."""

from __future__ import annotations

from ridgeline.models.families.decoders import DECODERS
from ridgeline.models.families.family import Family

FAMILIES: dict[str, Family] = {**DECODERS}
