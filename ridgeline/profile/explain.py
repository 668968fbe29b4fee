"""The page of a rule: what it looks for, why, what to change, what would prove it wrong."""

from __future__ import annotations

import textwrap

from ridgeline.profile.rules.base import TraceRule
from ridgeline.profile.rules.table import BY_ID, RULES, standing

_FAMILIES = {
    "D": "data and copies",
    "S": "synchronisation",
    "L": "launching",
    "N": "network",
    "C": "computation",
    "K": "kernels",
    "M": "memory",
}


def rule_page(rule_id: str) -> str:
    """The page of one rule as Markdown that reads well on a terminal."""
    rule = BY_ID[rule_id]
    parts = [
        f"# {rule.id}: {rule.title}",
        _wrapped(f"Fires when: {rule.threshold}."),
        _wrapped(rule.meaning),
        _claims(rule),
    ]
    for key, fix in rule.fixes.items():
        title = "Fix" if key == "default" else f"Fix ({key})"
        parts.append(_wrapped(f"{title}: {fix.text}."))
        if fix.diff:
            parts.append("```diff\n" + fix.diff + "\n```")
    parts += [
        _wrapped(f"What would disprove it: {rule.disproof}."),
        _wrapped(f"Source: {rule.source}."),
    ]
    if rule.needs:
        parts.append(
            _wrapped("Needs: " + ", ".join(sorted(_NEEDS[need] for need in rule.needs)) + ".")
        )
    return "\n\n".join(parts) + "\n"


_NEEDS = {
    "gpu": "GPU activity in the trace",
    "shapes": "record_shapes=True",
    "memory": "profile_memory=True",
    "gpu_model": "a GPU that `ridgeline gpu list` knows",
    "busy": "a device that idles at most 15%",
}


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 78, break_long_words=False, break_on_hyphens=False)


def _claims(rule: TraceRule) -> str:
    if rule.severity == "note":
        return "A note: it promises no time."
    if rule.severity == "stops":
        return "Ranks above every loss of time, because it ends the run."
    text = "Seconds at stake are per step and an upper bound on what the fix saves."
    if rule.folds_into:
        text += f" Only mentioned when {', '.join(rule.folds_into)} already tells the story."
    return _wrapped(text)


def rule_index() -> str:
    """One line a rule, by family."""
    lines = []
    family = ""
    for rule in sorted(RULES, key=lambda rule: standing(rule.id)):
        if rule.id[0] != family:
            family = rule.id[0]
            lines.append(f"\n{family}: {_FAMILIES[family]}")
        lines.append(f"  {rule.id:4} {rule.title}")
    return "\n".join(lines).strip() + "\n"
