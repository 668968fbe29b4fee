"""Every rule is complete as data, has a trace that fires it and one that does not."""

from __future__ import annotations

import string

import pytest
from conftest import fired
from programs import RULE_OF
from synthetic import PAIRS

from ridgeline.profile import diagnose
from ridgeline.profile.explain import rule_index, rule_page
from ridgeline.profile.rules.table import BY_ID, RULES, standing

# Rules that some recorded program fires besides the one planted in it.
BESIDE = {
    "L1": ("channels_first.cuda.repaired", "well_tuned.cuda.planted"),
    "L3": ("recompilation.cuda.planted", "well_tuned.cuda.planted"),
    "K1": ("well_tuned.cuda.planted", "no_workers.cuda.planted"),
    "K2": ("small_grid.cuda.repaired", "well_tuned.cuda.planted"),
    "K3": ("well_tuned.cuda.planted", "no_workers.cuda.planted"),
    "K5": ("well_tuned.cuda.planted", "no_tf32.cuda.planted"),
    "K6": ("unfused_attention.cuda.planted", "no_tf32.cuda.repaired"),
    "K10": ("no_amp.cuda.planted", "no_tf32.cuda.planted"),
}
PLANTED = {rule: (f"{n}.cuda.planted", f"{n}.cuda.repaired") for n, rule in RULE_OF.items()}


def test_every_rule_has_both_traces():
    assert set(PLANTED) | set(BESIDE) | set(PAIRS) == set(BY_ID)


@pytest.mark.parametrize("rule", sorted({**PLANTED, **BESIDE}, key=standing))
def test_recorded_pair(recorded, rule):
    fires, silent = {**PLANTED, **BESIDE}[rule]
    assert rule in fired(recorded(fires))
    assert rule not in fired(recorded(silent))


@pytest.mark.parametrize("rule", sorted(PAIRS, key=standing))
def test_built_pair(tmp_path, rule):
    fires, silent = PAIRS[rule]
    assert rule in fired(diagnose(fires().write(tmp_path / "fires.json")))
    assert rule not in fired(diagnose(silent().write(tmp_path / "silent.json")))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_rule_is_complete(rule):
    assert rule.title and rule.threshold and rule.meaning and rule.disproof and rule.source
    assert "default" in rule.fixes
    assert all(fix.text for fix in rule.fixes.values())
    assert rule.severity in ("time", "stops", "note")
    assert set(rule.folds_into) <= set(BY_ID)
    page = rule_page(rule.id)
    assert page.startswith(f"# {rule.id}: ") and max(map(len, page.splitlines())) <= 90


def test_messages_are_filled_in(recorded):
    for name in RULE_OF:
        for finding in recorded(f"{name}.cuda.planted").findings:
            assert not set("{}") & set(finding.message)


def test_templates_name_only_simple_fields():
    for rule in RULES:
        fields = [field for _, field, _, _ in string.Formatter().parse(rule.message) if field]
        assert all(field.isidentifier() for field in fields)


def test_index_lists_all():
    index = rule_index()
    assert all(f" {rule.id} " in index for rule in RULES)


def test_advice_already_followed_is_not_given(recorded):
    """A compiled program that is bound by launching is told to use graphs, not to compile."""
    finding = recorded("pointwise_chain.cuda.repaired").finding("L1")
    assert finding is not None and "compiled already" in finding.fix


def test_kernel_advice_waits_while_the_device_idles(recorded):
    rank = recorded("no_workers.cuda.planted").main
    assert {item.rule for item in rank.unchecked} >= {"K1", "K2", "K4"}


def test_claims_do_not_overlap(recorded):
    """No kernel is claimed twice, and no more idle time than there is."""
    from ridgeline.profile import intervals as iv

    for name in RULE_OF:
        rank = recorded(f"{name}.cuda.planted").main
        rows = [row for match in rank.matches.values() for row in match.rows.tolist()]
        assert len(rows) == len(set(rows)), name
        idle = sum(match.idle for match in rank.matches.values())
        assert idle <= iv.measure(rank.facts.idle) * (1 + 1e-9), name
