"""Rules C as data: types, sizes, layouts and compositions that cost device time."""

from __future__ import annotations

from ridgeline.profile.rules.base import Fix, Rule
from ridgeline.profile.rules.patterns import (
    bias_before_norm,
    layout_changes,
    pointwise_chain,
    unfused_attention,
)
from ridgeline.profile.rules.precision import no_tensor_cores, no_tf32, odd_sizes, stray_double

_MODELLED = frozenset({"gpu", "shapes", "gpu_model"})

RULES = (
    Rule(
        id="C1",
        title="tensor cores unused",
        threshold="products or convolutions that tensor cores could do and do not (sm_70 up)",
        message="{share} of the time goes into products and convolutions that could run on tensor "
        "cores and do not",
        check=no_tensor_cores,
        fixes={
            "default": Fix(
                "run the forward pass under autocast",
                """\
-loss = model(batch)
+with torch.autocast("cuda", torch.bfloat16):
+    loss = model(batch)""",
            )
        },
        source="PyTorch TensorBoard plugin",
        disproof="run one step under autocast: if those kernels take as long, they are bound by "
        "memory or launch",
        meaning="The floor is the larger of arithmetic at the dense 16-bit peak and traffic at "
        "half the bytes; at stake is the time above it, and half of the float32 pointwise time.",
        order=72,
        needs=_MODELLED,
    ),
    Rule(
        id="C2",
        title="float32 products without TF32",
        threshold="float32 products on plain cores of a GPU with TF32 (sm_80 up)",
        message="{share} of the time goes into float32 matrix products outside the tensor cores",
        check=no_tf32,
        fixes={
            "default": Fix(
                "allow TF32 for float32 products (10 bits of mantissa), or use bfloat16",
                '+torch.set_float32_matmul_precision("high")',
            )
        },
        source="TorchTidy",
        disproof="set it and compare: if the products take as long, they are bound by memory",
        meaning="PyTorch computes float32 products in full precision unless told otherwise. The "
        "floor is arithmetic at the dense TF32 peak, or traffic.",
        order=70,
        limits={"share": 0.001},
        needs=_MODELLED,
    ),
    Rule(
        id="C3",
        title="sizes that no tile divides",
        threshold="a 16-bit product whose rows are not a multiple of 8 elements apart",
        message="a size of {size} keeps 16-bit products from loading whole 16-byte words",
        check=odd_sizes,
        fixes={
            "default": Fix(
                "pad vocabulary, hidden and batch sizes to a multiple of 64",
                """\
-head = nn.Linear(2048, 50257)
+head = nn.Linear(2048, 50304)  # the 47 extra rows are never a target""",
            )
        },
        source="TorchTidy",
        disproof="pad the one size and time it: if it is no faster, alignment was not the limit",
        meaning="Rows that do not begin on 16-byte boundaries force narrow loads and older "
        "kernels. The floor is arithmetic at the dense peak, or traffic.",
        order=74,
        limits={"share": 0.001},
        needs=_MODELLED,
    ),
    Rule(
        id="C4",
        title="stray double precision",
        threshold="float64 takes over 15% of the device's time, everything else under 60%",
        message="float64 takes {share} of the device's time",
        check=stray_double,
        fixes={
            "default": Fix(
                "find where float64 enters (NumPy arrays are float64) and cast there",
                """\
-scale = torch.from_numpy(np.linspace(0, 1, n)).cuda()
+scale = torch.from_numpy(np.linspace(0, 1, n, dtype=np.float32)).cuda()""",
            )
        },
        source="Nsight Compute FP64 rule",
        disproof="if float64 is wanted there, nothing is wrong",
        meaning="float64 runs at half of float32 speed on data-centre GPUs and at 1/32 or 1/64 on "
        "others, and moves twice the bytes. One float64 operand turns a whole expression.",
        order=68,
        limits={"double": 0.15, "other": 0.6},
        needs=_MODELLED,
    ),
    Rule(
        id="C5",
        title="convolutions in NCHW",
        threshold="layout kernels take 10% of the convolutions' time (20%: badly)",
        message="cuDNN turns tensors between NCHW and NHWC: {grade}{share} of the convolutions' "
        "time",
        check=layout_changes,
        fixes={
            "default": Fix(
                "keep model and images in channels_last",
                """\
-model = model.cuda()
+model = model.cuda().to(memory_format=torch.channels_last)
-images = images.cuda()
+images = images.cuda().to(memory_format=torch.channels_last)""",
            )
        },
        source="TraceLens",
        disproof="convert and record again: if layout kernels remain, an op between does not "
        "support the layout",
        meaning="Tensor-core convolutions want channels innermost. In NCHW every convolution turns "
        "its input round and back. Batch norm on NCHW is slower too, and counts above its floor.",
        order=76,
        limits={"share": 0.1, "bad": 0.2},
        needs=_MODELLED,
    ),
    Rule(
        id="C6",
        title="bias before batch norm",
        threshold="a convolution with a bias straight before a batch norm",
        message="{count} convolution biases a step are subtracted again by the batch norm after "
        "them",
        check=bias_before_norm,
        fixes={
            "default": Fix(
                "leave the bias out",
                """\
-nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64)
+nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64)""",
            )
        },
        source="TorchTidy",
        disproof="if the norm is in evaluation mode with frozen statistics, the bias does count",
        meaning="Batch norm subtracts the mean of each channel, bias included. What remains is the "
        "cost of adding it and of its gradient.",
        order=78,
        needs=frozenset({"gpu", "shapes"}),
    ),
    Rule(
        id="C7",
        title="unfused attention",
        threshold="softmax over a stored score matrix between two batched products",
        message="attention writes its scores to memory: {share} of the time goes into kernels that "
        "touch them",
        check=unfused_attention,
        fixes={
            "default": Fix(
                "call the fused form, which never stores the scores",
                """\
-scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
-out = torch.softmax(scores, dim=-1) @ v
+out = F.scaled_dot_product_attention(q, k, v)""",
            )
        },
        source="own",
        disproof="if the scores are used elsewhere (shown, regularised), they must be stored",
        meaning="The score matrix grows with the square of the length and passes through memory "
        "many times, forward and backward. The floor is the products alone, halved for a mask.",
        order=66,
        needs=frozenset({"shapes"}),
    ),
    Rule(
        id="C8",
        title="chain of pointwise kernels",
        threshold="three or more pointwise kernels in a row over tensors of one size",
        message="{count} pointwise kernels in a row ({names}) each read what the one before wrote",
        check=pointwise_chain,
        fixes={
            "default": Fix(
                "let the compiler fuse them",
                """\
+@torch.compile
 def activation(x):
     return torch.tanh(x * 0.8 + 0.04 * x**3) * x""",
            )
        },
        source="own",
        disproof="if an intermediate is needed later, it must be written: compile and look",
        meaning="Pointwise kernels are bound by memory. Fused, a chain reads its inputs once and "
        "writes its result once. That the values flow from one to the next is assumed from their "
        "sizes and order: a trace does not record it.",
        order=80,
        limits={"kernels": 3, "shortest": 5.0, "share": 0.005},
        needs=_MODELLED,
    ),
)
