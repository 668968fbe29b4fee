"""The scenarios of the mutation attack are many, different, and would show a stale result."""

from __future__ import annotations

from tests.attacks.mutation.draw import scenarios
from tests.attacks.mutations import is_live


def test_scenarios_differ() -> None:
    texts = {(case.text, case.change) for case in scenarios()}
    assert len(texts) > 3000


def test_changes_show() -> None:
    dead = [case.name for case in scenarios()[:300] if case.live and not is_live(case)]
    assert len(dead) <= 3, dead
