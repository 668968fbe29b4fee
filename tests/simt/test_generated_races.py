"""Kernels from templates with labels that follow from the template: all found, none invented."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline import simt
from tests.simt.flag_kernels import FlagKernel, flag_kernels
from tests.simt.graph_kernels import GraphKernel, graph_arguments, graph_kernels

GRAPHS, FLAGS = list(graph_kernels()), list(flag_kernels())


def check_graph(kernel: GraphKernel) -> None:
    found = simt.kernel(kernel.text).simulate(*kernel.launch, *graph_arguments(kernel))
    if kernel.error is None:
        assert not found.findings, kernel.name
    else:
        assert kernel.error in {finding.kind for finding in found.errors}, kernel.name


def check_flag(kernel: FlagKernel) -> None:
    memory = [np.zeros(4, np.int32) for _ in range(3)]
    found = simt.kernel(kernel.text).simulate(2, 64, *memory)
    if kernel.races:
        assert "global race" in {finding.kind for finding in found.errors}, kernel.name
    else:
        assert not found.findings, kernel.name


@pytest.mark.parametrize("kernel", GRAPHS[::7], ids=lambda kernel: kernel.name)
def test_kernels_over_graphs(kernel: GraphKernel) -> None:
    check_graph(kernel)


@pytest.mark.parametrize("kernel", FLAGS[::5], ids=lambda kernel: kernel.name)
def test_flags_and_locks(kernel: FlagKernel) -> None:
    check_flag(kernel)


@pytest.mark.slow
def test_all_kernels_over_graphs() -> None:
    for kernel in GRAPHS:
        check_graph(kernel)


@pytest.mark.slow
def test_all_flags_and_locks() -> None:
    for kernel in FLAGS:
        check_flag(kernel)
