"""A table of GPUs: dense peaks by type, memory bandwidth, and where the numbers come from.

Peaks are TFLOP/s without sparsity, at boost clock, with float32 accumulation; `tensor` peaks are
the matrix units'. A trace names its GPU, and `find` matches that name.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """One model of GPU; peaks that do not exist on it are 0."""

    name: str
    capability: int
    sms: int
    boost_ghz: float
    float32: float
    float64: float
    tf32: float
    sixteen_bit: float
    float8: float
    bandwidth: float
    """GB/s of device memory."""
    memory: float
    """GB of device memory."""
    l2_mb: float
    source: str
    watts: float = 0.0
    """The power it may take, which bounds the clock of sustained products."""
    link: float = 0.0
    """GB/s to its peers in each direction, over NVLink or its like; 0 where there is none."""

    def peak(self, dtype: str, tensor_cores: bool = True) -> float:
        """Dense TFLOP/s for `float32`, `tf32`, `float64`, `bfloat16`, `float16` or `float8`."""
        if dtype == "tf32":
            return self.tf32 or self.float32
        if dtype in ("bfloat16", "float16"):
            return (self.sixteen_bit if tensor_cores else 0.0) or self.float32
        if dtype == "float8":
            return self.float8 or self.sixteen_bit or self.float32
        return self.float64 if dtype == "float64" else self.float32

    @property
    def ridge(self) -> float:
        """FLOP per byte above which 16-bit matrix work is bound by arithmetic."""
        return (self.sixteen_bit or self.float32) * 1e3 / self.bandwidth


_NANO = "Jetson Nano data sheet DA-09366"
_P100 = "Tesla P100 data sheet (2016)"
_V100 = "Tesla V100 data sheet (2018) and Volta white paper WP-08608"
_T4 = "T4 data sheet (2019) and Turing white paper WP-09183"
_A100 = "A100 data sheet (2021) and Ampere white paper"
_GA102 = "Ampere GA102 white paper V2.1"
_AD102 = "Ada GPU architecture white paper V2.02"
_L4 = "L4 and L40S data sheets (2023), sparse figures halved"
_H100 = "H100 data sheet (2023) and Hopper white paper, sparse figures halved"
_H200 = "H200 data sheet (2024), sparse figures halved"
_B200 = "Blackwell architecture brief (2024), sparse figures halved"
_GH200 = "GH200 data sheet (2023), sparse figures halved"
_GB200 = "GB200 NVL72 data sheet (2024), by GPU, sparse figures halved"
_GB300 = "GB300 NVL72 data sheet (2025), by GPU, sparse figures halved"
_MI300X = "MI300X data sheet (2023), links 7 x 64 GB/s"
_A800 = "A100 data sheet (2021); links cut to 400 GB/s both ways, as Nvidia sold it in China"
_H800 = "H100 data sheet (2023); links cut to 400 GB/s both ways, as Nvidia sold it in China"
_B300 = "DGX B300 data sheet (2025), sparse figures halved"
_AD6000 = "RTX 6000 Ada data sheet (2022), sparse figures halved"
_GB202 = "RTX Blackwell GPU architecture white paper V1.1"
_MI250X = "MI250X data sheet (2021): one of its two chips, which programs see as a GPU each"
_MI325X = "MI325X data sheet (2024), links 7 x 64 GB/s"
_MI355X = "MI355X data sheet (2025), links 7 x 76.8 GB/s"
_H100_96 = "H100 data sheet (2023); 96 GB of HBM2e at 500 W as Meta runs it"
_ORIN = "Jetson AGX Orin series technical brief v1.2"

GPUS: tuple[Gpu, ...] = (
    Gpu("Jetson Nano", 53, 1, 0.9216, 0.236, 0.0074, 0, 0.472, 0, 25.6, 4, 0.25, _NANO, 10, 0),
    Gpu("Jetson AGX Orin", 87, 16, 1.3, 5.32, 0.083, 21.3, 42.5, 0, 204.8, 64, 4, _ORIN, 60, 0),
    Gpu("P100", 60, 56, 1.480, 10.6, 5.3, 0, 21.2, 0, 732, 16, 4, _P100, 300, 80),
    Gpu("V100", 70, 80, 1.530, 15.7, 7.8, 0, 125, 0, 900, 32, 6, _V100, 300, 150),
    Gpu("T4", 75, 40, 1.590, 8.1, 0.254, 0, 65, 0, 320, 16, 4, _T4, 70, 0),
    Gpu("A100 40GB", 80, 108, 1.410, 19.5, 19.5, 156, 312, 0, 1555, 40, 40, _A100, 400, 300),
    Gpu("A100 80GB", 80, 108, 1.410, 19.5, 19.5, 156, 312, 0, 2039, 80, 40, _A100, 400, 300),
    Gpu("A800", 80, 108, 1.410, 19.5, 9.7, 156, 312, 0, 2039, 80, 40, _A800, 400, 200),
    Gpu("A10", 86, 72, 1.695, 31.2, 0.976, 62.5, 125, 0, 600, 24, 6, _GA102, 150, 0),
    Gpu("RTX 3090", 86, 82, 1.695, 35.6, 0.556, 35.6, 71, 0, 936, 24, 6, _GA102, 350, 0),
    Gpu("RTX A5000", 86, 64, 1.695, 27.8, 0.434, 55.5, 111.1, 0, 768, 24, 6, _GA102, 230, 0),
    Gpu("RTX A6000", 86, 84, 1.800, 38.7, 0.605, 77.4, 154.8, 0, 768, 48, 6, _GA102, 300, 0),
    Gpu("RTX 4090", 89, 128, 2.520, 82.6, 1.29, 82.6, 165.2, 330.3, 1008, 24, 72, _AD102, 450, 0),
    Gpu("L4", 89, 58, 2.040, 30.3, 0.49, 60, 121, 242.5, 300, 24, 48, _L4, 72, 0),
    Gpu("L40S", 89, 142, 2.520, 91.6, 1.41, 183, 362, 733, 864, 48, 96, _L4, 350, 0),
    Gpu("RTX 6000 Ada", 89, 142, 2.505, 91.1, 1.42, 182, 364, 728, 960, 48, 96, _AD6000, 300, 0),
    Gpu("RTX 5090", 120, 170, 2.407, 104.8, 1.64, 104.8, 209.5, 419, 1792, 32, 96, _GB202, 575, 0),
    Gpu("H800", 90, 132, 1.980, 67, 1, 494.7, 989.4, 1978.9, 3350, 80, 50, _H800, 700, 200),
    Gpu("H100 PCIe", 90, 114, 1.755, 51, 51, 378, 756, 1513, 2000, 80, 50, _H100, 350, 0),
    Gpu("H100 SXM", 90, 132, 1.980, 67, 67, 494.7, 989.4, 1978.9, 3350, 80, 50, _H100, 700, 450),
    Gpu(
        "H100 96GB", 90, 132, 1.980, 67, 67, 494.7, 989.4, 1978.9, 2400, 96, 50, _H100_96, 500, 450
    ),
    Gpu("GH200", 90, 132, 1.980, 67, 67, 494.7, 989.4, 1978.9, 4000, 96, 50, _GH200, 900, 450),
    Gpu("H200", 90, 132, 1.980, 67, 67, 494.7, 989.4, 1978.9, 4800, 141, 50, _H200, 700, 450),
    Gpu("B200", 100, 148, 1.965, 75, 37, 1125, 2250, 4500, 8000, 180, 126, _B200, 1000, 900),
    Gpu("B300", 103, 148, 1.965, 75, 1.2, 1125, 2250, 4500, 8000, 270, 126, _B300, 1100, 900),
    Gpu("GB200", 100, 152, 1.965, 80, 40, 1250, 2500, 5000, 8000, 186, 126, _GB200, 1200, 900),
    Gpu("GB300", 103, 160, 1.965, 80, 1.3, 1250, 2500, 5000, 8000, 279, 126, _GB300, 1400, 900),
    Gpu("MI250X", 910, 110, 1.7, 47.9, 47.9, 0, 191.5, 0, 1638, 64, 8, _MI250X, 280, 100),
    Gpu("MI300X", 942, 304, 2.1, 163.4, 81.7, 653.7, 1307, 2615, 5300, 192, 4, _MI300X, 750, 448),
    Gpu("MI325X", 942, 304, 2.1, 163.4, 81.7, 653.7, 1307, 2615, 6000, 256, 4, _MI325X, 1000, 448),
    Gpu("MI355X", 950, 256, 2.4, 157.3, 78.6, 0, 2516, 5033, 8000, 288, 4, _MI355X, 1400, 537),
)

# Words in the driver's device names, most specific first.
_PATTERNS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("GH200",), "GH200"),
    (("GB300",), "GB300"),
    (("B300",), "B300"),
    (("MI325X",), "MI325X"),
    (("MI355X",), "MI355X"),
    (("MI250X",), "MI250X"),
    (("H800",), "H800"),
    (("A800",), "A800"),
    (("A6000",), "RTX A6000"),
    (("A5000",), "RTX A5000"),
    (("6000", "ADA"), "RTX 6000 Ada"),
    (("5090",), "RTX 5090"),
    (("GB200",), "GB200"),
    (("MI300X",), "MI300X"),
    (("H200",), "H200"),
    (("H100", "96GB"), "H100 96GB"),
    (("H100", "PCIe"), "H100 PCIe"),
    (("H100",), "H100 SXM"),
    (("B200",), "B200"),
    (("A100", "80GB"), "A100 80GB"),
    (("A100",), "A100 40GB"),
    (("V100",), "V100"),
    (("P100",), "P100"),
    (("L40S",), "L40S"),
    (("L4",), "L4"),
    (("T4",), "T4"),
    (("A10",), "A10"),
    (("4090",), "RTX 4090"),
    (("3090",), "RTX 3090"),
    (("Jetson", "Nano"), "Jetson Nano"),
    (("Orin",), "Jetson AGX Orin"),
)
# Words that mark a card as another than the one it shares a name with.
_OTHERS = ({"LAPTOP"}, {"MAX"}, {"MOBILE"}, {"3090", "TI"}, {"ORIN", "NANO"}, {"ORIN", "NX"})


def find(name: str) -> Gpu | None:
    """The GPU a device name means, such as `NVIDIA A100-SXM4-80GB`; None where unknown."""
    # Whole words, so that `A10` is not found in `A100`, nor `P100` in `Quadro P1000`.
    words = set(name.upper().replace("-", " ").replace("_", " ").split())
    if any(words >= other for other in _OTHERS):
        return None
    for parts, model in _PATTERNS:
        if words.issuperset(part.upper() for part in parts):
            return next(gpu for gpu in GPUS if gpu.name == model)
    return None
