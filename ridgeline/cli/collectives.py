"""Draw an all-reduce step by step: who sends what to whom, and what every rank sends in all.

ridgeline collectives ring -n 8
ridgeline collectives parameter-server -n 4 --servers 2
"""

from __future__ import annotations

import argparse

from ridgeline.distributed.algorithms import ALGORITHMS, AllReduce, PartTransfer, all_reduce_by

NAME = "collectives"
HELP = "draw the steps of an all-reduce algorithm"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Register the arguments of `ridgeline collectives`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("algorithm", choices=tuple(ALGORITHMS))
    parser.add_argument("-n", "--ranks", type=int, default=4, help="how many ranks (4)")
    parser.add_argument("--elements", type=int, help="elements of the array (one for each rank)")
    parser.add_argument("--servers", type=int, help="servers of a parameter server (1)")
    parser.add_argument("--node", type=int, help="ranks of a node, for hierarchical")


def run(arguments: argparse.Namespace) -> int:
    """Print the picture."""
    options = {
        name: value
        for name, wanted in (("servers", "parameter-server"), ("node", "hierarchical"))
        if (value := getattr(arguments, name)) is not None and arguments.algorithm == wanted
    }
    elements = arguments.ranks if arguments.elements is None else arguments.elements
    print(picture(all_reduce_by(arguments.algorithm, arguments.ranks, elements, **options)))
    return 0


def picture(algorithm: AllReduce) -> str:
    """Rounds as lines: `0→1 [2:3] +` is elements 2 to 3 of rank 0, added on rank 1."""
    lines = [f"{algorithm.name}: {algorithm.elements} elements on {algorithm.ranks} ranks"]
    for number, step in enumerate(algorithm.rounds):
        lines.append(f"  step {number + 1:>2}  " + "   ".join(map(_arrow, step)))
    lines.append("")
    lines.append("  rank   messages   elements sent")
    for rank in range(algorithm.ranks):
        sent = algorithm.elements_sent(rank)
        lines.append(f"  {rank:>4}   {algorithm.messages(rank):>8}   {sent:>13}")
    return "\n".join(lines)


def _arrow(transfer: PartTransfer) -> str:
    how = "+" if transfer.adds else "="
    return f"{transfer.source}→{transfer.target} {how}[{transfer.start}:{transfer.stop}]"
