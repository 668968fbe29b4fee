"""Rules S: the host waits for the device, or stops it to manage memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ridgeline.profile import intervals as iv
from ridgeline.profile.analysis.facts import Facts
from ridgeline.profile.rules.base import EXACT, Evidence, Hit, Ledger, per_step, percent
from ridgeline.profile.trace.model import Ints

_READS = {
    "aten::_local_scalar_dense": ".item()",
    "aten::item": ".item()",
    "aten::is_nonzero": "a Python `if` on a tensor",
    "aten::equal": "torch.equal",
    "aten::nonzero": "nonzero or a boolean index",
    "aten::masked_select": "masked_select",
    "aten::unique": "unique",
    "aten::_unique2": "unique",
    "aten::repeat_interleave": "repeat_interleave",
    "aten::copy_": ".cpu() or .to('cpu')",
}
_ALLOCATIONS = (
    "cudaMalloc",
    "cudaFree",
    "cudaHostAlloc",
    "cudaFreeHost",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemCreate",
    "cuMemRelease",
    "hipMalloc",
    "hipFree",
)


def _wait_match(facts: Facts, ledger: Ledger, rows: Ints, what: str, minimum: float) -> Hit | None:
    """The stake of some waits: the time waited and the idle time after, as far as the device
    idles at all, since a step cannot take less than the device's work."""
    calls = facts.trace.calls
    waits = facts.spans(calls, rows)
    after = facts.idle_around(waits)
    if facts.share(after) < minimum:
        return None
    # Recording slows the host, so part of what is hidden in a real run shows as idle after it.
    stake = ledger.take_idle(iv.measure(waits) + after)
    if stake <= 0:
        return None
    evidence = (
        Evidence("waits", f"{len(rows) / facts.steps.count:.1f} a step", EXACT),
        Evidence("host blocked", f"{per_step(facts, iv.measure(waits))} a step"),
        Evidence("device idle after them", f"{per_step(facts, after)} a step"),
    )
    return Hit(
        stake,
        evidence,
        {
            "what": what,
            "count": f"{len(rows) / facts.steps.count:.0f}",
            "share": percent(facts.share(stake)),
        },
        idle=stake,
        places=tuple(facts.call_places(rows)),
        spans=waits,
    )


def _reads_back(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """S1: a value is brought to the host, which waits for it."""
    kept, reasons = [], []
    copied_in = _ops_copying_in(facts)
    for row in facts.waiting_calls.tolist():
        chain = facts.links.ops.chain(int(facts.links.op_of_call[row]))
        names = [facts.op_name(op) for op in chain]
        reason = next((_READS[name] for name in names if name in _READS), "")
        if reason and not copied_in.intersection(chain):
            kept.append(row)
            reasons.append(reason)
    if len(kept) < limits["per_step"] * facts.steps.count:
        return None
    commonest = max(set(reasons), key=reasons.count)
    return _wait_match(facts, ledger, np.array(kept), commonest, limits["idle"])


def _ops_copying_in(facts: Facts) -> set[int]:
    """Ops whose wait belongs to a copy towards the device, which is D3's business."""
    rows = [int(r) for r in facts.copies if "HtoD" in facts.gpu_name(int(r))]
    return {int(facts.links.op_of_gpu[row]) for row in rows}


def _device_wide(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """S2: the host waits for everything on the device."""
    rows = facts.calls_named("cudaDeviceSynchronize", "cuCtxSynchronize", "hipDeviceSynchronize")
    if not len(rows):
        return None
    return _wait_match(facts, ledger, rows, "", limits["idle"])


def _allocates(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """S3: device memory is asked from and given back to the driver in every step."""
    rows = facts.calls_named(*_ALLOCATIONS)
    if len(rows) < limits["per_step"] * facts.steps.count:
        return None
    calls = facts.trace.calls
    spans = facts.spans(calls, rows)
    # `cudaFree` waits for the device, so what follows it starts from an empty queue.
    stake = ledger.take_idle(iv.measure(spans) + facts.idle_around(spans))
    if stake <= 0:
        return None
    frees = int(np.sum(facts.trace.name_mask("cudaFree", "hipFree")[calls.name[rows]]))
    evidence = (
        Evidence(
            "driver allocations", f"{(len(rows) - frees) / facts.steps.count:.1f} a step", EXACT
        ),
        Evidence("releases", f"{frees / facts.steps.count:.1f} a step", EXACT),
        Evidence("time inside them", f"{per_step(facts, iv.measure(spans))} a step"),
    )
    values = {"count": f"{len(rows) / facts.steps.count:.0f}"}
    fix = "cache" if frees else "default"
    lines = tuple(facts.call_places(rows))
    return Hit(stake, evidence, values, idle=stake, places=lines, fix=fix, spans=spans)


CHECKS = {
    "S1": _reads_back,
    "S2": _device_wide,
    "S3": _allocates,
}
