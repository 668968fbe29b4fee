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


# The usual node of each GPU, with the network that its maker puts into it.
NODES: dict[str, NodeKind] = {
    "V100": NodeKind(8, 6.25, "DGX-1 data sheet: 4 x 100 Gb/s", 12.5),
    "A100 40GB": NodeKind(8, 25.0, "DGX A100 data sheet: 8 x 200 Gb/s"),
    "A100 80GB": NodeKind(8, 25.0, "DGX A100 data sheet: 8 x 200 Gb/s"),
    "H100 PCIe": NodeKind(8, 25.0, "two GPUs share a 400 Gb/s card, as HGX partners build", 50.0),
    "H100 SXM": NodeKind(8, 50.0, "DGX H100 data sheet: 8 x 400 Gb/s", 50.0),
    "H100 96GB": NodeKind(8, 50.0, "Grand Teton: 8 x 400 Gb/s", 50.0),
    "GH200": NodeKind(4, 25.0, "four to a node with 200 Gb/s each, as Alps has", 200.0),
    "H200": NodeKind(8, 50.0, "DGX H200 data sheet: 8 x 400 Gb/s", 50.0),
    "B200": NodeKind(8, 50.0, "DGX B200 data sheet: 8 x 400 Gb/s", 50.0),
    "GB200": NodeKind(72, 50.0, "GB200 NVL72: 400 Gb/s a GPU, 72 GPUs on NVLink", 200.0),
    "GB300": NodeKind(72, 100.0, "GB300 NVL72: 800 Gb/s a GPU, 72 GPUs on NVLink", 200.0),
    "MI300X": NodeKind(8, 50.0, "8 x 400 Gb/s, as its reference platform", 50.0),
}
# Of a GPU's memory, what frameworks say that they can have: 79.15 GiB of 80, 39.6 of 40.
_ALLOCATABLE = 0.989
_ALONE = NodeKind(1, 1.25, "no node is known: one GPU with 10 Gb/s Ethernet", 6.0)
# GPUs whose published training runs the planner was compared with.
VALIDATED = ("A100 40GB", "A100 80GB", "H100 SXM", "H100 96GB", "H200", "B200", "GB200", "GB300")
# Dollars an hour, the order of what clouds asked in 2025: for comparing layouts, not for offers.
PRICES = {
    "V100": 1.0, "A100 40GB": 1.3, "A100 80GB": 1.8, "H100 SXM": 3.0, "H100 96GB": 3.0,
    "H200": 3.5, "B200": 5.0, "GB200": 6.0, "GB300": 7.0, "MI300X": 2.5,
}  # fmt: skip
_SHORT = {"h100": "H100 SXM", "a100": "A100 80GB", "a100-80": "A100 80GB", "a100-40": "A100 40GB",
          "h100-sxm": "H100 SXM", "h100-pcie": "H100 PCIe", "orin": "Jetson AGX Orin",
          "h100-96": "H100 96GB", "jetson": "Jetson AGX Orin"}  # fmt: skip


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
    def validated(self) -> bool:
        """Whether published runs on this GPU were compared with."""
        return self.gpu.name in VALIDATED


def gpu_named(name: str) -> Gpu:
    """The GPU that a word means, such as `h100` or `a100-40`, or an error with the nearest."""
    wanted = name.strip().lower().replace("_", "-").replace(" ", "-")
    full = _SHORT.get(wanted, wanted).lower().replace(" ", "-")
    for gpu in GPUS:
        if gpu.name.lower().replace(" ", "-") == full:
            return gpu
    words = [gpu.name.lower().replace(" ", "-") for gpu in GPUS] + list(_SHORT)
    near = difflib.get_close_matches(wanted, words, 1, 0.0)
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
    if precision == "mxfp8" and not 100 <= gpu.capability < 900:
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
    link = gpu.link or node.host_link
    price = PRICES.get(gpu.name, 0.0)
    return Cluster(gpu, node.gpus, link, node.network, host_link=node.host_link, price=price)
