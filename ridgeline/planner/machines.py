"""Clusters as data: GPUs of `ridgeline gpu list` in nodes, nodes on a network.

Bandwidths are GB/s in each direction. What a GPU's usual node and network are is in `NODES`; a file
(`cluster_files.py`) describes another cluster.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from ridgeline.errors import BadValueError
from ridgeline.planner.layouts import PRECISIONS
from ridgeline.profile.gpus import GPUS, Gpu


@dataclass(frozen=True)
class NodeKind:
    """A server, or a rack whose GPUs are all linked: how many, and their share of a network."""

    gpus: int
    network: float
    """GB/s of network for each GPU, in each direction."""
    source: str
    host_link: float = 25.0
    """GB/s to host memory, which peers use where there is no other link."""
    through_host: bool = False
    """What peers send one another is copied to host memory and from there."""
    host_memory: float = 16.0
    """GB/s that an optimizer on the host reads and writes, for each GPU.

    DeepSpeed's on two sockets updates 4 billion parameters a second, at 30 bytes each; a Grace has
    as much memory bandwidth for its GPUs as such a host for eight.
    """


_PCIE = "eight to a server on PCIe 4.0, two 25 Gb/s ports"
# The usual node of each GPU, with the network that its maker puts into it.
NODES: dict[str, NodeKind] = {
    "V100": NodeKind(8, 6.25, "DGX-1 data sheet: 4 x 100 Gb/s", 12.5),
    "A100 40GB": NodeKind(8, 25.0, "DGX A100 data sheet: 8 x 200 Gb/s"),
    "A100 80GB": NodeKind(8, 25.0, "DGX A100 data sheet: 8 x 200 Gb/s"),
    "A800": NodeKind(8, 25.0, "as DGX A100: 8 x 200 Gb/s"),
    "A10": NodeKind(8, 0.8, _PCIE),
    "L4": NodeKind(8, 0.8, _PCIE),
    "L40S": NodeKind(8, 0.8, _PCIE),
    "RTX A5000": NodeKind(8, 0.8, _PCIE),
    "RTX A6000": NodeKind(8, 0.8, _PCIE),
    "RTX 6000 Ada": NodeKind(8, 0.8, _PCIE),
    "RTX 3090": NodeKind(8, 0.8, f"{_PCIE}; its driver lets no peers", through_host=True),
    "RTX 4090": NodeKind(8, 0.8, f"{_PCIE}; its driver lets no peers", through_host=True),
    "RTX 5090": NodeKind(8, 0.8, f"{_PCIE}; its driver lets no peers", 50.0, True),
    "H100 PCIe": NodeKind(8, 25.0, "two GPUs share a 400 Gb/s card, as HGX partners build", 50.0),
    "H100 SXM": NodeKind(8, 50.0, "DGX H100 data sheet: 8 x 400 Gb/s", 50.0),
    "H100 96GB": NodeKind(8, 50.0, "Grand Teton: 8 x 400 Gb/s", 50.0),
    "GH200": NodeKind(
        4, 25.0, "four to a node with 200 Gb/s each, as Alps has", 200.0, host_memory=120.0
    ),
    "H200": NodeKind(8, 50.0, "DGX H200 data sheet: 8 x 400 Gb/s", 50.0),
    "B200": NodeKind(8, 50.0, "DGX B200 data sheet: 8 x 400 Gb/s", 50.0),
    "H800": NodeKind(8, 50.0, "as DGX H100: 8 x 400 Gb/s", 50.0),
    "B300": NodeKind(8, 100.0, "DGX B300 data sheet: 8 x 800 Gb/s", 50.0),
    "GB200": NodeKind(
        72, 50.0, "GB200 NVL72: 400 Gb/s a GPU, 72 GPUs on NVLink", 200.0, host_memory=60.0
    ),
    "GB300": NodeKind(
        72, 100.0, "GB300 NVL72: 800 Gb/s a GPU, 72 GPUs on NVLink", 200.0, host_memory=60.0
    ),
    "MI250X": NodeKind(8, 12.5, "four modules, 4 x 200 Gb/s, as Frontier and LUMI", 36.0),
    "MI300X": NodeKind(8, 50.0, "8 x 400 Gb/s, as its reference platform", 50.0),
    "MI325X": NodeKind(8, 50.0, "8 x 400 Gb/s, as its reference platform", 50.0),
    "MI355X": NodeKind(8, 50.0, "8 x 400 Gb/s, as its reference platform", 50.0),
}
_BRIEF = (
    "mean of the best product's shape, Maximum Achievable Matmul FLOPS of stas00/ml-engineering"
)
# Of peak, what the best 16-bit product of a second reached on GPUs whose kind no run was fitted on.
REACHED: dict[str, tuple[float, str]] = {
    "RTX 4090": (1.0, "its clock is above the data sheet's: as remembered of cuBLAS"),
    "MI250X": (0.70, "as remembered of rocBLAS on LUMI"),
    "MI300X": (668.4 / 1307, _BRIEF),
    "MI325X": (784.9 / 1307, _BRIEF),
    "MI355X": (1565 / 2516, _BRIEF),
}
# Of a GPU's memory, what frameworks say that they can have: 79.15 GiB of 80, 39.6 of 40.
_ALLOCATABLE = 0.989
_ALONE = NodeKind(1, 1.25, "no node is known: one GPU with 10 Gb/s Ethernet", 6.0)
# How many published training runs on a GPU the planner was compared with, and within which share of
# what was measured half of its predictions are: docs/plan.md, and a test counts.
COMPARED = {
    "V100": (45, 0.07), "A100 40GB": (86, 0.06), "A100 80GB": (384, 0.06), "RTX 3090": (6, 0.12),
    "RTX 4090": (6, 0.07), "H100 SXM": (471, 0.08), "H100 96GB": (29, 0.05), "H800": (10, 0.12),
    "H200": (10, 0.13), "B200": (46, 0.09), "B300": (19, 0.07), "GB200": (87, 0.13),
    "GB300": (63, 0.07), "MI250X": (2, 0.14), "MI300X": (2, 0.51), "MI325X": (4, 0.03),
    "MI355X": (1, 0.18),
}  # fmt: skip
# Dollars an hour, the order of what clouds asked in 2025: for comparing layouts, not for offers.
PRICES = {
    "V100": 1.0, "A100 40GB": 1.3, "A100 80GB": 1.8, "A800": 1.8, "H100 SXM": 3.0, "H100 96GB": 3.0,
    "H800": 3.0, "H100 PCIe": 2.5, "GH200": 3.0, "H200": 3.5, "B200": 5.0, "B300": 6.0,
    "GB200": 6.0, "GB300": 7.0, "MI300X": 2.5, "MI325X": 2.8, "MI355X": 4.0, "L40S": 1.0,
    "RTX 6000 Ada": 0.8, "RTX A6000": 0.5, "RTX 3090": 0.2, "RTX 4090": 0.4, "RTX 5090": 0.6,
    "A10": 0.6, "L4": 0.5,
}  # fmt: skip
_SHORT = {
    "h100": "H100 SXM", "h100-sxm": "H100 SXM", "h100-pcie": "H100 PCIe", "h100-96": "H100 96GB",
    "a100": "A100 80GB", "a100-80": "A100 80GB", "a100-40": "A100 40GB", "a800-80": "A800",
    "orin": "Jetson AGX Orin", "jetson": "Jetson AGX Orin", "3090": "RTX 3090", "4090": "RTX 4090",
    "5090": "RTX 5090", "a5000": "RTX A5000", "a6000": "RTX A6000", "6000-ada": "RTX 6000 Ada",
}  # fmt: skip


@dataclass(frozen=True)
class Cluster:
    """Nodes of one kind of GPU on a network, which may be narrower between pods."""

    gpu: Gpu
    node: int
    """GPUs that reach one another over links."""
    link: float
    network: float
    pod: int = 0
    """GPUs between which the network has full bisection; 0 for all."""
    oversubscription: float = 1.0
    """How much narrower the network between pods is."""
    latency: float = 5e-6
    """Seconds of a message over the network, beyond what software takes."""
    host_link: float = 25.0
    """GB/s to host memory, in each direction."""
    host_memory: float = 16.0
    """GB/s that an optimizer on the host reads and writes, for each GPU."""
    price: float = 0.0
    """Dollars a GPU and hour."""
    product_share: float = 0.0
    """Of peak, what a large 16-bit product was measured to reach; 0 where only modelled."""
    memory_share: float = 0.0
    """The same of the memory's bandwidth."""
    link_measured: float = 0.0
    """GB/s of bus bandwidth that collectives inside a node were measured at."""
    network_measured: float = 0.0
    """The same over several nodes, by GPU."""
    memory_measured: float = 0.0
    """GB that a program was seen to have on a GPU, beside what others of its node hold there."""

    @property
    def capacity(self) -> float:
        """Bytes that a program has on one GPU.

        Data sheets count stacks of 2^30 bytes, whatever they call them: drivers show 81,559 MiB of
        an H100 with 80 "GB", and frameworks can allocate about one in a hundred less.
        """
        if self.memory_measured:
            return self.memory_measured * 1e9
        return self.gpu.memory * 2.0**30 * _ALLOCATABLE

    @property
    def compared(self) -> tuple[int, float]:
        """Published runs on this GPU that the planner was compared with, and the median error."""
        return COMPARED.get(self.gpu.name, (0, 0.0))


_NO_GPUS = ("tpu", "trn", "trainium", "inf", "gaudi", "hpu", "ascend", "cerebras", "wse")


def gpu_named(name: str) -> Gpu:
    """The GPU that a word means, such as `h100` or `a100-40`, or an error with the nearest."""
    wanted = name.strip().lower().replace("_", "-").replace(" ", "-")
    full = _SHORT.get(wanted, wanted).lower().replace(" ", "-")
    for gpu in GPUS:
        if gpu.name.lower().replace(" ", "-") == full:
            return gpu
    words = [gpu.name.lower().replace(" ", "-") for gpu in GPUS] + list(_SHORT)
    near = difflib.get_close_matches(wanted, words, 1, 0.0)
    if wanted.startswith(_NO_GPUS):
        raise BadValueError(
            f"{name!r} is no GPU: the planner knows nothing of other accelerators",
            help="`ridgeline gpu list` shows the GPUs that it knows",
        )
    raise BadValueError(
        f"there is no GPU {name!r} in the table",
        help=f"the nearest is {near[0]!r}; `ridgeline gpu list` shows all, and a cluster file may "
        "describe another",
    )


def check_precision(gpu: Gpu, precision: str) -> None:
    """Refuse a precision that there is not, or that a GPU has no products in."""
    if precision not in PRECISIONS:
        near = difflib.get_close_matches(precision, PRECISIONS, 1, 0.0)
        raise BadValueError(
            f"there is no precision {precision!r}",
            help=f"the nearest is {near[0]!r}; there are {', '.join(PRECISIONS)}",
        )
    if precision == "bf16" and gpu.capability < 80:
        raise BadValueError(f"{gpu.name} has no bfloat16 products", help="take --precision fp16")
    if precision == "mxfp8" and not (100 <= gpu.capability < 900 or gpu.capability >= 950):
        nearest = "fp8" if gpu.float8 else "bf16"
        raise BadValueError(
            f"{gpu.name} has no products with scales by blocks", help=f"take --precision {nearest}"
        )
    if precision == "fp8" and not gpu.float8:
        nearest = "bf16" if gpu.capability >= 80 else "fp16"
        raise BadValueError(
            f"{gpu.name} has no float8 products", help=f"take --precision {nearest}"
        )


def usual_cluster(gpu: Gpu) -> Cluster:
    """The cluster that this GPU is usually part of."""
    node = NODES.get(gpu.name, _ALONE)
    link = gpu.link or node.host_link / (2 if node.through_host else 1)
    price = PRICES.get(gpu.name, 0.0)
    return Cluster(
        gpu, node.gpus, link, node.network, host_link=node.host_link, price=price,
        host_memory=node.host_memory,
    )  # fmt: skip
