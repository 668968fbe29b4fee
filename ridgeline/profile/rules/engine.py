"""Runs the rules over the facts of one trace and weighs what they find.

Rules claim in order: idle time once, each kernel once. A rule that another already covers is
only mentioned there. Advice on single kernels is withheld while the device idles over 15%.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ridgeline.profile import intervals as iv
from ridgeline.profile.analysis.facts import Facts
from ridgeline.profile.report import Finding, Unchecked, Verdict
from ridgeline.profile.rules.base import Hit, Ledger, TraceRule
from ridgeline.profile.rules.table import RULES, standing

MOST_IDLE_FOR_KERNEL_ADVICE = 0.15
# A finding below this part of a step is noise and is listed as a note.
NOISE = 0.005

# Rules from this place on explain idle time by its amount alone, so what the profiler's own cost
# may explain is set aside before them.
GENERIC_FROM = 58

_REASONS = {
    "gpu": "no GPU activity in the trace",
    "shapes": "record with record_shapes=True",
    "memory": "record with profile_memory=True",
    "gpu_model": "the GPU is not in the table of known ones",
    "busy": "the device idles too much for advice on single kernels",
}


@dataclass(frozen=True)
class Outcome:
    """What the rules said about one trace."""

    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    unchecked: tuple[Unchecked, ...]
    verdict: Verdict
    matches: dict[str, Hit]


def _available(facts: Facts) -> set[str]:
    """What the trace offers to rules that need it."""
    offers = {
        "gpu": facts.has_gpu,
        "shapes": facts.trace.has_shapes,
        "memory": len(facts.trace.memory) > 0,
        "gpu_model": facts.gpu_model is not None,
        "busy": _idle_of_its_own(facts) <= MOST_IDLE_FOR_KERNEL_ADVICE,
    }
    return {name for name, offered in offers.items() if offered}


def _idle_of_its_own(facts: Facts) -> float:
    """The device's idle share without what recording may have caused."""
    return max(0.0, facts.idle_share - facts.share(facts.profiler_cost))


def _finding(rule: TraceRule, match: Hit, facts: Facts) -> Finding:
    fix = rule.fixes[match.fix]
    stake = min(match.stake, facts.window)
    return Finding(
        rule=rule.id,
        title=rule.title,
        severity=rule.severity,
        seconds=stake / facts.steps.count / 1e6,
        share=stake / facts.window,
        message=rule.message.format(**match.values),
        evidence=match.evidence,
        places=match.places,
        confidence=match.confidence,
        fix=fix.text,
        diff=fix.diff,
    )


def run_rules(facts: Facts) -> Outcome:
    """Evaluate every rule the trace can support."""
    ledger, available = Ledger(facts), _available(facts)
    profiler = 0.0
    found: dict[str, Finding] = {}
    matches: dict[str, Hit] = {}
    unchecked: list[Unchecked] = []
    for rule in RULES:
        if rule.order >= GENERIC_FROM and not profiler and facts.has_gpu:
            profiler = ledger.take_profiler(facts.profiler_cost)
        missing = sorted(rule.needs - available)
        if missing:
            # A missing device explains everything else that is missing.
            reason = "gpu" if "gpu" in missing else missing[0]
            unchecked.append(Unchecked(rule.id, _REASONS[reason]))
            continue
        match = rule.check(facts, ledger, rule.limits)
        if match is None:
            continue
        host = next((name for name in rule.folds_into if name in found), "")
        if host:
            found[host] = replace(found[host], also=(*found[host].also, rule.id))
            continue
        ledger.settle(match)
        found[rule.id] = _finding(rule, match, facts)
        matches[rule.id] = match
    ranked = sorted(
        found.values(), key=lambda f: (f.severity != "stops", -f.seconds, standing(f.rule))
    )
    main = tuple(f for f in ranked if f.severity == "stops" or _counts(f))
    notes = tuple(f for f in ranked if f not in main)
    unchecked.sort(key=lambda item: standing(item.rule))
    return Outcome(main, notes, tuple(unchecked), _verdict(facts, main, matches, profiler), matches)


def _counts(finding: Finding) -> bool:
    return finding.severity == "time" and finding.share >= NOISE


def _verdict(
    facts: Facts, findings: tuple[Finding, ...], matches: dict[str, Hit], profiler: float
) -> Verdict:
    """Split a step into the modelled limit, what the findings lose, and the rest."""
    steps = facts.steps.count * 1e6
    step = facts.window / steps
    limit = min(_limit(facts, findings, matches), facts.window) / steps
    left, lost = step - limit, []
    for finding in findings:
        part = min(finding.seconds, left)
        if part > 0:
            lost.append((finding.rule, part))
            left -= part
    recording = min(profiler / steps, left)
    left -= recording
    idle = iv.measure(facts.idle) if facts.has_gpu else 0.0
    claimed = sum(matches[rule].idle for rule, _ in lost) + profiler
    idle_left = max(0.0, idle - claimed) / steps
    lengths = np.diff(facts.steps.device)
    return Verdict(
        step=step,
        spread=float(np.std(lengths)) / 1e6 if len(lengths) > 1 else 0.0,
        steps=facts.steps.count,
        dropped=facts.steps.dropped,
        source=facts.steps.source,
        busy=1 - facts.idle_share if facts.has_gpu else 0.0,
        has_gpu=facts.has_gpu,
        limit=limit,
        lost=tuple(lost),
        profiler=recording,
        unexplained=max(0.0, left),
        unexplained_idle=min(idle_left, max(0.0, left)),
    )


def _limit(facts: Facts, findings: tuple[Finding, ...], matches: dict[str, Hit]) -> float:
    """What is left when every finding's promise comes true: the modelled floor of work no rule
    claims, and of claimed kernels the part their finding does not promise to save."""
    if facts.gpu_model is None:
        return 0.0
    claimed = np.zeros(len(facts.trace.gpu), dtype=np.bool_)
    total = 0.0
    for finding in findings:
        match = matches[finding.rule]
        claimed[match.rows] = True
        if finding.rule[0] in "CK":
            total += max(0.0, float(facts.gpu_time(match.rows).sum()) - match.stake)
    gpu = facts.trace.gpu
    for _, rows, _, floor in facts.modelled:
        free = rows[~claimed[rows]]
        inside = float(facts.gpu_time(free).sum())
        whole = float(np.sum(gpu.end[rows] - gpu.start[rows]))
        total += min(inside, floor * inside / whole) if whole > 0 else 0.0
    return total
