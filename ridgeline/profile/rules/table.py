"""All rules in one table, by id and in the order in which they claim time."""

from __future__ import annotations

from ridgeline.profile.rules import compute, input, kernel, launch_rules, memory, network, sync
from ridgeline.profile.rules.base import Rule

RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            *input.RULES,
            *sync.RULES,
            *launch_rules.RULES,
            *network.RULES,
            *compute.RULES,
            *kernel.RULES,
            *memory.RULES,
        ),
        key=lambda rule: rule.order,
    )
)
BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}
PRECEDENCE = "DSLNCKM"


def standing(rule_id: str) -> tuple[int, int]:
    """Where a rule stands by family and number; earlier wins where seconds are equal."""
    return PRECEDENCE.index(rule_id[0]), int(rule_id[1:])
