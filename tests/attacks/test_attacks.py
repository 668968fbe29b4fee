"""Every attack finds nothing in its first trials, and finds the faults that are planted for it."""

from __future__ import annotations

import pytest

from tests.attacks.attack import Attack, attacks
from tests.attacks.runner import run_apart
from tests.fuzz.faults import Fault, planted

ATTACKS = attacks()
PLANTED = [(attack, fault) for attack in ATTACKS.values() for fault in attack.faults]


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_an_attack_finds_nothing(attack: Attack) -> None:
    found = run_apart(attack, range(attack.short))
    assert not found, "\n\n".join(map(str, found))


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_an_attack_has_a_fault_to_find(attack: Attack) -> None:
    assert attack.faults


@pytest.mark.parametrize("attack, fault", PLANTED, ids=[f"{a.name}: {f.name}" for a, f in PLANTED])
def test_a_fault_can_be_planted_in_the_code_as_it_is(attack: Attack, fault: Fault) -> None:
    with planted(fault):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("attack, fault", PLANTED, ids=[f"{a.name}: {f.name}" for a, f in PLANTED])
def test_a_planted_fault_is_found(attack: Attack, fault: Fault) -> None:
    assert run_apart(attack, range(attack.short), fault.name)
