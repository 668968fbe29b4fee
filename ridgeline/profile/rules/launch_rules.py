"""Rules L as data: thresholds, messages, fixes, sources."""

from __future__ import annotations

from ridgeline.profile.rules.base import Fix, Rule
from ridgeline.profile.rules.launch import CHECKS

_LAUNCH_FIXES = {
    "default": Fix(
        "compile the step, so that neighbouring ops become one kernel and launches are replayed",
        """\
-def step(batch): ...
+@torch.compile(mode="reduce-overhead")
+def step(batch): ...""",
    ),
    "graph": Fix(
        "the step is compiled already: replay it as one CUDA graph, or give it more work",
        """\
-step = torch.compile(step)
+step = torch.compile(step, mode="reduce-overhead")""",
    ),
    "batch": Fix("graphs are in use already: enlarge the batch, or merge the small tensors"),
}
_GPU = frozenset({"gpu"})
_HOST_BOUND = ("L2", "L1", "L3", "L7", "L8", "L9", "L6")

RULES = (
    Rule(
        id="L1",
        title="launch-bound",
        threshold="launch calls take 3% of the time (15%: badly), and the device idles",
        message="the step is {grade}launch-bound: {share} of the time is spent inside launch calls "
        "while the device idles",
        check=CHECKS["L1"],
        fixes=_LAUNCH_FIXES,
        source="XProf kernel-launch analysis",
        disproof="double the batch: if the step gets longer by as much, the device and not the "
        "launching was the limit",
        meaning="Every op costs the host several microseconds however small it is. At stake is "
        "all idle time no narrower rule explains, since a step cannot take less than its kernels.",
        order=62,
        limits={"share": 0.03, "bad": 0.15, "idle": 0.03},
        needs=_GPU,
        folds_into=("L2",),
    ),
    Rule(
        id="L2",
        title="tiny kernels",
        threshold="the mean kernel is shorter than 10 µs and the device idles over 15%",
        message="{count} kernels a step take {mean} on average; the device waits between them",
        check=CHECKS["L2"],
        fixes={
            **_LAUNCH_FIXES,
            "default": Fix(
                "do the work on one stacked tensor, or compile the step so that it is fused",
                """\
-out = [torch.tanh(part * 0.5) for part in parts]
+out = torch.tanh(torch.stack(parts) * 0.5)""",
            ),
        },
        source="TraceLens short-kernel analysis",
        disproof="replay the step as a CUDA graph: if it is not faster, launching was hidden",
        meaning="At stake are the idle time that no narrower rule explains and the time inside the "
        "tiny kernels themselves, because fusing removes both.",
        order=60,
        limits={"mean": 10.0, "idle": 0.15},
        needs=_GPU,
    ),
    Rule(
        id="L3",
        title="kernels shorter than their launch",
        threshold="half of the kernels are shorter than the call that launched them",
        message="{share} of the kernels take less time than the call that launches them",
        check=CHECKS["L3"],
        fixes=_LAUNCH_FIXES,
        source="Holistic Trace Analysis; own",
        disproof="as L2",
        meaning="When launching takes longer than running, the device must run dry sooner or "
        "later. The profiler itself lengthens the calls by one to three microseconds.",
        order=64,
        limits={"share": 0.5, "idle": 0.03},
        needs=_GPU,
        folds_into=("L2", "L1"),
    ),
    Rule(
        id="L4",
        title="slow way to the device",
        threshold="calls over 50 µs, or launch to start over 100 µs with an empty queue",
        message="{count} calls took unusually long to get work to an empty device",
        check=CHECKS["L4"],
        fixes={
            "default": Fix(
                "look for other threads that hold the GIL, too few cores for the data workers, and "
                "guards of compiled code"
            )
        },
        source="Holistic Trace Analysis CUDA-launch statistics",
        disproof="run on an otherwise idle machine: if the delays stay, they are the driver's",
        meaning="A launch takes 3 to 10 µs on a free core. Only the time above the limits counts.",
        order=58,
        limits={"call": 50.0, "delay": 100.0, "share": 0.01},
        needs=_GPU,
    ),
    Rule(
        id="L5",
        title="device under-used",
        threshold="the device is busy less than half of the time",
        message="the device is busy only {busy} of the time",
        check=CHECKS["L5"],
        fixes={
            "default": Fix(
                "read the idle split first: if the host launches meanwhile, compile or use a CUDA "
                "graph; if it does something else, profile it; then try a larger batch"
            )
        },
        source="PyTorch TensorBoard plugin; Nsight Systems utilisation rule",
        disproof="double the batch: if the step gets twice as long, the device was the limit",
        meaning="The last resort of the idle rules: it claims what no narrower rule explains.",
        order=95,
        limits={"busy": 0.5},
        needs=_GPU,
        folds_into=(*_HOST_BOUND, "D1", "D2", "D3", "D5", "D6", "D7", "S1", "S2", "S3"),
    ),
    Rule(
        id="L6",
        title="one long gap",
        threshold="a single gap of 500 ms in which the device does nothing",
        message="the device stood still for {longest} in one piece: a checkpoint, an evaluation or "
        "a garbage collection",
        check=CHECKS["L6"],
        fixes={
            "default": Fix(
                "copy the state to host memory and write it on another thread",
                """\
-torch.save(model.state_dict(), path)
+state = {name: part.cpu() for name, part in model.state_dict().items()}
+threading.Thread(target=torch.save, args=(state, path)).start()""",
            )
        },
        source="Nsight Systems GPU-starvation rule",
        disproof="look at the host's frames in the gap: if it waits for other ranks, the cause is "
        "elsewhere",
        meaning="Waiting for the loader and compiling are told apart and do not count here.",
        order=42,
        limits={"gap": 500_000.0},
        needs=_GPU,
    ),
    Rule(
        id="L7",
        title="optimizer goes tensor by tensor",
        threshold="20 or more single-tensor updates in optimizer.step, no foreach or fused op",
        message="optimizer.step makes {count} small updates a step, one tensor at a time",
        check=CHECKS["L7"],
        fixes={
            "default": Fix(
                "use the fused form",
                """\
-optimizer = torch.optim.AdamW(parameters, lr=3e-4, foreach=False)
+optimizer = torch.optim.AdamW(parameters, lr=3e-4, fused=True)""",
            ),
            "host": Fix(
                "use the fused form, which also exists for CPU tensors",
                """\
-optimizer = torch.optim.AdamW(parameters, lr=3e-4)
+optimizer = torch.optim.AdamW(parameters, lr=3e-4, fused=True)""",
            ),
        },
        source="TorchTidy",
        disproof="run with fused=True: if optimizer.step takes as long, it is bound by memory",
        meaning="At stake are the host's time in optimizer.step, as far as the device idles, and "
        "the kernels it launches.",
        order=46,
        limits={"updates": 20},
    ),
    Rule(
        id="L8",
        title="Python loop over a tensor",
        threshold="ten or more select ops on one tensor with little between them",
        message="a Python loop picks a tensor apart, {rounds} rounds in a row",
        check=CHECKS["L8"],
        fixes={
            "default": Fix(
                "do it for all rows at once, or with torch.vmap",
                """\
-out = torch.stack([normalize(row, dim=0) for row in table])
+out = normalize(table, dim=1)""",
            )
        },
        source="TorchTidy (there off by default)",
        disproof="vectorise the loop: if the step is no shorter, the loop was hidden",
        meaning="Each round costs several ops of several microseconds, however small a row is.",
        order=48,
        limits={"selects": 10, "apart": 40, "share": 0.005},
    ),
    Rule(
        id="L9",
        title="recompilation in steady state",
        threshold="more than one compilation after warm-up",
        message="torch.compile compiled {count} times in {steps} steady steps",
        check=CHECKS["L9"],
        fixes={
            "default": Fix(
                "pad to a few fixed sizes, or say which dimension varies",
                """\
 @torch.compile
 def step(tokens): ...
+torch._dynamo.mark_dynamic(tokens, 1)
 step(tokens)""",
            )
        },
        source="own",
        disproof="TORCH_LOGS=recompiles prints the guard that failed: if it names no size, the "
        "cause is another",
        meaning="A guard fails on a new size or value, and the function is compiled again. After "
        "the recompile limit it falls back to eager without a word.",
        order=40,
        limits={"count": 1},
    ),
)
