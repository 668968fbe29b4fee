"""Rules N: communication between ranks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ridgeline.profile import intervals as iv
from ridgeline.profile.analysis.facts import Facts
from ridgeline.profile.model.kernels import is_collective
from ridgeline.profile.rules.base import EXACT, Evidence, Hit, Ledger, per_step, percent
from ridgeline.profile.trace.model import Ints

_HOST_COLLECTIVES = ("gloo:", "mpi:")


def _collectives(facts: Facts) -> Ints:
    chosen = [is_collective(facts.gpu_name(int(row))) for row in facts.kernels]
    return facts.kernels[np.array(chosen, dtype=bool)] if chosen else facts.kernels


def _exposed(facts: Facts, rows: Ints) -> tuple[iv.Intervals, iv.Intervals]:
    """(time in collectives, the part of it beside no other kernel)."""
    whole = facts.spans(facts.trace.gpu, rows)
    others = np.setdiff1d(facts.kernels, rows)
    return whole, iv.subtract(whole, facts.spans(facts.trace.gpu, others))


def _match(facts: Facts, rows: Ints) -> Hit:
    whole, exposed = _exposed(facts, rows)
    overlap = 1 - iv.measure(exposed) / max(iv.measure(whole), 1e-9)
    evidence = (
        Evidence("collectives", f"{len(rows) / facts.steps.count:.1f} a step", EXACT),
        Evidence("time in them", f"{per_step(facts, iv.measure(whole))} a step"),
        Evidence("hidden behind kernels", percent(overlap)),
    )
    values = {"share": percent(facts.share(iv.measure(whole))), "overlap": percent(overlap)}
    return Hit(iv.measure(exposed), evidence, values, rows=rows, spans=exposed)


def _communicates(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    rows = ledger.free(_collectives(facts))
    if not len(rows):
        return None
    whole, _ = _exposed(facts, rows)
    return _match(facts, rows) if facts.share(iv.measure(whole)) >= limits["share"] else None


def _overlaps_badly(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    rows = _collectives(facts)
    if not len(rows):
        return None
    whole, exposed = _exposed(facts, rows)
    overlap = 1 - iv.measure(exposed) / max(iv.measure(whole), 1e-9)
    if overlap >= limits["overlap"] or facts.share(iv.measure(whole)) < limits["share"]:
        return None
    return _match(facts, rows)


def _wrong_wrapper(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """N3: threads instead of processes, or collectives through host memory."""
    parallel = facts.ops_named("DataParallel.forward")
    host = facts.ops_named(*_HOST_COLLECTIVES, prefix=True)
    if len(parallel):
        spans, fix = facts.spans(facts.trace.ops, parallel), "default"
        stake = ledger.take_idle(iv.measure(spans))
        label = Evidence("DataParallel.forward", f"{per_step(facts, iv.measure(spans))} a step")
    elif facts.has_gpu and (len(host) or facts.trace.backend == "gloo"):
        spans, fix = facts.spans(facts.trace.ops, host), "backend"
        stake = ledger.take_idle(iv.measure(spans))
        label = Evidence("host collectives", f"{per_step(facts, iv.measure(spans))} a step")
    else:
        return None
    what = "DataParallel" if len(parallel) else "a collective backend that goes through the host"
    return Hit(stake, (label,), {"what": what}, idle=stake, fix=fix, spans=spans)


CHECKS = {
    "N1": _communicates,
    "N2": _overlaps_badly,
    "N3": _wrong_wrapper,
}
