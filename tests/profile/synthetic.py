"""Built traces for rules that no recorded program plants: one that fires, one that must not."""

from __future__ import annotations

from builder import H200, TraceText, busy_program


def starved() -> TraceText:
    """Six steps in which the host computes in long ops and the device gets one short kernel."""
    trace = TraceText(H200).steps(6, 1000)
    for number in range(6):
        start = number * 1000
        trace.op("aten::host_side", start + 1, 996)
        trace.kernel("short", start + 40, 50, launch=start + 30)
    return trace


def under_used() -> TraceText:
    """A device that is busy 30% while the host shows nothing at all."""
    trace = TraceText(H200).steps(6, 1000)
    for number in range(6):
        start = number * 1000
        trace.op("aten::work", start + 1, 10)
        trace.kernel("short", start + 8, 300, launch=start + 2)
    return trace


def slow_launches() -> TraceText:
    """Launch calls of 200 µs in front of an idle device."""
    trace = TraceText(H200).steps(6, 1000)
    for number in range(6):
        start = number * 1000
        trace.op("aten::work", start + 1, 210)
        trace.kernel("long", start + 205, 790, launch=start + 2, call=200.0)
    return trace


def memory_at(share: float, busy: float = 0.98) -> TraceText:
    """A program whose memory stays at a share of the device's."""
    trace = busy_program(busy=busy)
    used = int(share * H200["totalGlobalMem"])
    for number in range(6):
        trace.memory(number * 1000 + 5, used, used)
    return trace


def collective(length: float, beside: bool) -> TraceText:
    """A collective of some length a step, alone or beside a kernel."""
    trace = TraceText(H200, distributedInfo={"backend": "nccl", "rank": 0, "world_size": 2})
    trace.steps(6, 1000)
    for number in range(6):
        start = number * 1000
        trace.op("aten::work", start + 1, 20)
        trace.kernel("some_kernel", start + 8, 985 if beside else 990 - length, launch=start + 2)
        begin = start + 10 if beside else start + 999 - length
        trace.kernel("ncclDevKernel_AllReduce_Sum_bf16", begin, length, start + 6, stream=9)
    return trace


def data_parallel() -> TraceText:
    trace = TraceText(H200).steps(6, 1000)
    for number in range(6):
        start = number * 1000
        trace.annotation("DataParallel.forward", start + 1, 600)
        trace.kernel("some_kernel", start + 300, 600, launch=start + 290)
    return trace


def host_backend() -> TraceText:
    trace = TraceText(H200, distributedInfo={"backend": "gloo", "rank": 0, "world_size": 2})
    trace.steps(6, 1000)
    for number in range(6):
        start = number * 1000
        trace.op("gloo:all_reduce", start + 700, 290)
        trace.kernel("some_kernel", start + 8, 690, launch=start + 2)
    return trace


# rule: (fires, stays silent)
PAIRS = {
    "D7": (starved, busy_program),
    "L4": (slow_launches, busy_program),
    "L5": (under_used, busy_program),
    "M1": (lambda: memory_at(0.95), lambda: memory_at(0.5)),
    "M2": (lambda: memory_at(0.3, busy=0.4), lambda: memory_at(0.3)),
    "N1": (lambda: collective(200, beside=False), lambda: collective(50, beside=False)),
    "N2": (lambda: collective(60, beside=False), lambda: collective(60, beside=True)),
    "N3": (data_parallel, busy_program),
}
