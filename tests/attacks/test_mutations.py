"""The scenarios of the mutation attack are many, different, and would show a stale result."""

from __future__ import annotations

import pytest

from tests.attacks.mutation.asked import ASKED
from tests.attacks.mutation.draw import scenarios
from tests.attacks.mutation.libraries import LIBRARY_CASES
from tests.attacks.mutation.scenario import Case
from tests.attacks.mutation.strange import STRANGE_CASES
from tests.attacks.mutations import Trial, drawn, is_live, judge


@pytest.mark.parametrize(
    "case", [*ASKED, *LIBRARY_CASES, *STRANGE_CASES], ids=lambda case: case.name
)
def test_what_c_code_and_libraries_ask_for_counts(case: Case) -> None:
    assert is_live(case)
    found = judge(Trial(case, "plain", True))
    assert found.word == "right", found


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
