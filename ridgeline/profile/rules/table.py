"""All rules in one table, by id and in the order in which they claim time."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from ridgeline.profile.rules import (
    input,
    kernel,
    launch,
    memory,
    network,
    patterns,
    precision,
    sync,
)
from ridgeline.profile.rules.base import Check, Fix, TraceRule

_FAMILIES = (input, sync, launch, network, patterns, precision, kernel, memory)
_CHECKS: dict[str, Check] = {id: check for f in _FAMILIES for id, check in f.CHECKS.items()}


def _rule(id: str, row: dict[str, Any]) -> TraceRule:
    """A rule from its row and its check."""
    row["fixes"] = {name: Fix(**fix) for name, fix in row["fixes"].items()}
    row["needs"] = frozenset(row.get("needs", ()))
    row["folds_into"] = tuple(row.get("folds_into", ()))
    return TraceRule(id=id, check=_CHECKS[id], **row)


def _rules() -> list[TraceRule]:
    rows = tomllib.loads((Path(__file__).parent / "rules.toml").read_text(encoding="utf-8"))
    return sorted((_rule(id, row) for id, row in rows.items()), key=lambda rule: rule.order)


RULES = tuple(_rules())
BY_ID: dict[str, TraceRule] = {rule.id: rule for rule in RULES}
PRECEDENCE = "DSLNCKM"


def standing(rule_id: str) -> tuple[int, int]:
    """Where a rule stands by family and number; earlier wins where seconds are equal."""
    return PRECEDENCE.index(rule_id[0]), int(rule_id[1:])
