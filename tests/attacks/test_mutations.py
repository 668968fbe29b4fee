"""The scenarios of the mutation attack are many, different, and would show a stale result."""

from __future__ import annotations

import pytest

from tests.attacks.mutation.draw import scenarios
from tests.attacks.mutations import drawn, is_live, judge


def test_scenarios_differ() -> None:
    texts = {(case.text, case.change) for case in scenarios()}
    assert len(texts) > 3000


def test_changes_show() -> None:
    dead = [case.name for case in scenarios()[:300] if case.live and not is_live(case)]
    assert len(dead) <= 3, dead


@pytest.mark.slow
def test_few_are_refused() -> None:
    words = [judge(drawn(seed)).word for seed in range(300)]
    assert words.count("refused") <= 45
