"""How to split a model over a cluster, how fast it will train and whether it fits.

Exit codes: 0 done; 1 it does not fit, or the target cannot be reached; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ridgeline.errors import BadValueError
from ridgeline.files import write_atomic

if TYPE_CHECKING:
    from ridgeline.planner.layouts import Job
    from ridgeline.planner.search import Search
    from ridgeline.planner.shapes import ModelShape
    from ridgeline.planner.software import Software
    from ridgeline.planner.work import TimedCluster

NAME = "plan"
HELP = "split a model over a cluster: layouts, speed and memory before paying for it"
_SAMPLES = 1024
"""Of a step, where a model takes samples and nobody says how many."""
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A model, a cluster, what is asked of them, and how to show it."""
    add = parser.add_argument
    add("model", nargs="?", help="a name such as llama3-70b, or file.py:name")
    add("--gpus", type=int, help="how many GPUs there are")
    add("--gpu", help="which, as in `ridgeline gpu list`: h100, a100-40, gb200, …")
    add("--cluster", metavar="FILE", help="a cluster as TOML, instead of --gpu")
    add("--input", metavar="SIZES", help="of one sample, for a module of your own: 3x224x224")
    add("--example", metavar="NAME", help="or what its file has as inputs (default `example`)")
    add("--seq", type=int, help="tokens of a sequence (default 8192, or what the model has)")
    add("--document", type=int, help="tokens of the samples that are packed into a sequence")
    add("--batch-tokens", help="tokens of a step; K and M are 1024 and 1024 squared")
    add("--batch", type=int, help="or sequences of a step")
    add("--precision", default="bf16", help="bf16 (default), fp16, fp8 or mxfp8")
    add(
        "--software",
        default="ridgeline",
        help="whose way of running it: ridgeline (default), megatron-core, fsdp-eager, "
        "fsdp-compile, deepspeed, …; settings of its own may follow: 'fsdp-eager reduce_bytes=2'",
    )
    add(
        "--optimizer",
        default="adamw",
        help="adamw (default), adamw-bf16 and adamw-8bit (moments), adamw-all-bf16, offload, lora, "
        "lora-attention or qlora",
    )
    add("--tokens", help="of a whole run, such as 2T: days, failures and money")
    add("--days", type=float, help="with --tokens: how many GPUs that takes")
    add("--will-it-fit", action="store_true", help="memory by rank, or the fewest GPUs")
    add("--explain", metavar="LAYOUT", help="one layout: 'tp8 cp1 pp16 dp128 v8 mb1 full zero1'")
    add("--sweep", action="store_true", help="every layout that fits, as CSV")
    add("--jitter", type=float, default=0.0, help="spread of each action's time, such as 0.05")
    add("--mtbf", type=float, help="hours between failures of one GPU (default: Llama 3's)")
    add("--save-seconds", type=float, default=15.0, help="of a checkpoint (default 15)")
    add("--top", type=int, default=5, help="how many layouts to show (default 5)")
    add("--json", action="store_true", help="the plan as JSON, for distributed.parallelize")
    add("--page", metavar="FILE", help="write the plan as one HTML page")
    add("--validate", action="store_true", help="compare with published training runs")
    add("--runs", metavar="FILE", help="with --validate: other runs, as CSV of the same columns")
    add("--refit", action="store_true", help="with --validate: fit the constants again first")
    add("--laws", action="store_true", help="plot the textbooks' scaling laws")


def run(arguments: argparse.Namespace) -> int:
    """Answer one question."""
    if arguments.validate:
        return _validate(arguments)
    if arguments.laws:
        from ridgeline.planner.laws import textbook_plots

        print(textbook_plots())
        return 0
    if not arguments.model:
        raise BadValueError("no model is given", help="such as llama3-70b --gpus 64 --gpu h100")
    _check(arguments)
    asked, gpus = _request(arguments)
    if arguments.days is not None:
        return _how_many(arguments, asked)
    if arguments.will_it_fit:
        return _will_it_fit(arguments, asked, gpus)
    if arguments.explain is not None:
        return _explain(arguments, asked, gpus)
    return _search(arguments, asked, gpus)


def number(text: str, binary: bool = False) -> float:
    """A number with a suffix: 2T, 16M, 300k; with `binary`, K and M are powers of 1024."""
    found = re.fullmatch(r"\s*([\d.]+)\s*([kmgbt]?)\s*", text, re.IGNORECASE)
    try:
        value = float(found[1]) if found else -1.0
    except ValueError:
        value = -1.0
    if found is None or value <= 0:
        raise BadValueError(f"{text!r} is no number of tokens", help="such as 16M, 2T or 8192")
    scale = _SCALES[found[2].lower()]
    if binary and found[2].lower() in ("k", "m"):
        scale = 1024.0 if found[2].lower() == "k" else 1024.0**2
    return value * scale


class _Asked(NamedTuple):
    """What is to be trained, how, and on what."""

    job: Job
    software: Software
    machine: TimedCluster
    lighter: tuple[tuple[str, Software], ...] = ()
    """Other optimizers that hold less, by name."""


_LIGHTER = {"adamw": ("adamw-8bit", "offload"), "lora": ("qlora",), "lora-attention": ("qlora",)}


def _check(arguments: argparse.Namespace) -> None:
    """Refuse flags whose values or whose company make no sense."""
    if (arguments.gpu is None) == (arguments.cluster is None):
        raise BadValueError("say either --gpu or --cluster", help="such as --gpu h100")
    if not 0 <= arguments.jitter < 0.5:
        raise BadValueError(f"a jitter of {arguments.jitter}", help="give 0 to 0.5, such as 0.05")
    if arguments.gpus is not None and arguments.gpus < 1:
        raise BadValueError(f"{arguments.gpus} GPUs", help="give at least 1")
    if arguments.top < 1:
        raise BadValueError(f"the {arguments.top} best layouts", help="give at least --top 1")
    for name in ("mtbf", "save_seconds"):
        value = getattr(arguments, name)
        if value is not None and not 0 < value < float("inf"):
            flag = "--" + name.replace("_", "-")
            raise BadValueError(f"{flag} {value}", help=f"give more than 0, such as {flag} 60")
    if arguments.days is not None and not 0 < arguments.days < float("inf"):
        raise BadValueError(
            f"--days {arguments.days:g}", help="give more than 0, such as --days 30"
        )
    if arguments.page is not None and Path(arguments.page).is_dir():
        raise BadValueError(f"{arguments.page} is a folder", help="give a file, as plan.html")
    if arguments.tokens:
        number(arguments.tokens)
    asked = [
        flag
        for flag, given in (
            ("--days", arguments.days is not None), ("--will-it-fit", arguments.will_it_fit),
            ("--explain", arguments.explain is not None), ("--sweep", arguments.sweep),
        )
        if given
    ]  # fmt: skip
    if arguments.sweep and (arguments.json or arguments.page):
        asked.append("--json" if arguments.json else "--page")
    if len(asked) > 1:
        raise BadValueError(f"{asked[0]} and {asked[1]} ask for two answers", help="ask for one")


def _request(arguments: argparse.Namespace) -> tuple[_Asked, int]:
    """The job, software and machine of the arguments, and how many GPUs there are, 0 unsaid."""
    from ridgeline.planner.cluster_files import read_cluster
    from ridgeline.planner.constants import DEFAULT
    from ridgeline.planner.layouts import Job
    from ridgeline.planner.machines import check_precision, gpu_named, usual_cluster
    from ridgeline.planner.named_models import shape_named
    from ridgeline.planner.optimizers import with_optimizer
    from ridgeline.planner.software import software_named
    from ridgeline.planner.work import TimedCluster

    said = None
    if arguments.cluster is not None:
        cluster, said = read_cluster(arguments.cluster)
    else:
        cluster = usual_cluster(gpu_named(arguments.gpu))
    gpus = arguments.gpus or said
    if gpus is None and arguments.days is None and not arguments.will_it_fit:
        raise BadValueError("how many GPUs there are is not said", help="add --gpus 64")
    check_precision(cluster.gpu, arguments.precision)
    shape = shape_named(arguments.model, arguments.input, arguments.example)
    length = _length(arguments, shape)
    sequences = _sequences(arguments, shape, length, gpus or 1)
    job = Job(shape, length, sequences, arguments.precision, _document(arguments, length))
    plain = software_named(arguments.software)
    software = with_optimizer(plain, shape, arguments.optimizer)
    others = _LIGHTER.get(arguments.optimizer, ())
    lighter = tuple((name, with_optimizer(plain, shape, name)) for name in others)
    return _Asked(job, software, TimedCluster(cluster, DEFAULT), lighter), gpus or 0


def _length(arguments: argparse.Namespace, shape: ModelShape) -> int:
    """Tokens of a sequence; 1 where a model takes samples."""
    length: int | None = arguments.seq
    if shape.unit == "samples":
        for flag, value in (("--seq", length), ("--batch-tokens", arguments.batch_tokens),
                            ("--document", arguments.document)):  # fmt: skip
            if value is not None:
                raise BadValueError(
                    f"{shape.name} takes samples, not tokens: {flag} says nothing of it",
                    help=f"give --batch {_SAMPLES}, samples a step",
                )
        return 1
    most = shape.longest or shape.learned_positions
    if length is None:
        length = min(8192, most or 8192)
    if length < 1 or (most and length > most):
        raise BadValueError(
            f"{shape.name} has no sequences of {length} tokens",
            help=f"the nearest is --seq {most if length > 0 else 1}",
        )
    return length


def _document(arguments: argparse.Namespace, length: int) -> int:
    """Tokens of the samples that are packed into a sequence; 0 where each is a whole one."""
    packed: int | None = arguments.document
    if packed is not None and not 1 <= packed <= length:
        raise BadValueError(
            f"samples of {packed} tokens in a sequence of {length}",
            help=f"the nearest is --document {max(1, min(packed, length))}",
        )
    return packed or 0


def _sequences(arguments: argparse.Namespace, shape: ModelShape, length: int, gpus: int) -> int:
    """Sequences of a step, as said or as is usual for a model of that size."""
    if arguments.batch is None and shape.unit == "samples":
        return _SAMPLES
    if arguments.batch is not None:
        if arguments.batch < 1:
            raise BadValueError(f"a batch of {arguments.batch}", help="give at least 1 sequence")
        return int(arguments.batch)
    usual = 4 * 2**20 if shape.parameters() > 3e9 else 2**19
    tokens = number(arguments.batch_tokens, True) if arguments.batch_tokens else usual
    if tokens < length:
        raise BadValueError(
            f"{tokens:,.0f} tokens a step are less than one sequence of {length:,}",
            help=f"the least is --batch-tokens {length}",
        )
    if arguments.batch_tokens and tokens % length:
        near = max(1, round(tokens / length)) * length
        raise BadValueError(
            f"{tokens:,.0f} tokens a step are no whole number of sequences of {length:,}",
            help=f"the nearest is --batch-tokens {near} ({near // length} sequences)",
        )
    sequences = int(tokens // length)
    if arguments.batch_tokens or gpus > sequences:
        return sequences
    return sequences // gpus * gpus  # any number of replicas can share what nobody asked for


def _found(asked: _Asked, gpus: int, jitter: float = 0.0) -> Search:
    """A search that found something, or an error with the nearest that is possible."""
    from ridgeline.planner.search import SIMULATED, fewest_gpus, nearest_batch, search

    job, software, machine, lighter = asked
    found = search(job, gpus, software, machine, SIMULATED, jitter)
    if found.found:
        return found
    if found.considered == 0:
        near = nearest_batch(job, gpus, machine)
        raise BadValueError(
            f"{gpus} GPUs cannot share {_batch(job)}",
            note=", ".join(f"{count} {why}" for why, count in found.pruned.items()),
            help=f"the nearest batch that they can is --batch {near}"
            if near
            else "take another number of GPUs",
        )
    assert found.smallest is not None
    held, layout = found.smallest
    more = fewest_gpus(job, software, machine)
    here = [name for name, one in lighter if search(job, gpus, one, machine, 0).found]
    raise BadValueError(
        f"{job.shape.name} does not fit on {gpus} x {machine.cluster.gpu.name} in any layout",
        note=f"the smallest, {layout}, holds {held / 1e9:.1f} GB on a GPU of "
        f"{machine.cluster.capacity / 1e9:.1f} GB",
        help="; ".join(
            ([f"the fewest on which it fits are {more[0]} ({more[1].layout})"] if more else [])
            + [f"with --optimizer {name} it fits here" for name in here[:1]]
        )
        or "take GPUs with more memory, a shorter sequence or a smaller batch",
    )


def _batch(job: Job) -> str:
    """The batch of a step, in words."""
    if job.shape.unit == "samples":
        return f"{job.sequences:,} samples"
    return f"{job.sequences} sequences of {job.length} tokens"


def _show(
    arguments: argparse.Namespace, asked: _Asked, gpus: int, found: Search, text: list[str]
) -> None:
    """An answer as a page, as JSON, or as text with what is known of the best layout below it."""
    from ridgeline.planner import report
    from ridgeline.planner.page import page
    from ridgeline.planner.results import document

    job, software, machine, _ = asked
    if arguments.page:
        write_atomic(Path(arguments.page), page(job, gpus, found, software, machine).encode())
        print(f"the page is in {arguments.page}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(document(job, gpus, found, software, machine, arguments.top), indent=1))
        return
    print(report.heading(job, gpus, software, machine), end="\n\n")
    print("\n".join(text), end="\n\n")
    best = found.found[0]
    print(report.conventions(job, best, software))
    print(report.waterfall(job, best, software, machine), end="\n\n")
    if best.layout.ranks > 1:
        print(report.traffic_table(job, best, software, machine), end="\n\n")
    print(report.memory_table(job, best, software, machine))
    print(report.help_for(best, job.shape.unit))
    if arguments.tokens:
        costs = (number(arguments.tokens), _hours(arguments), arguments.save_seconds)
        print("\n" + report.run_costs(job, best, machine, *costs))


def _hours(arguments: argparse.Namespace) -> float:
    from ridgeline.planner.failures import PUBLISHED_HOURS

    return PUBLISHED_HOURS if arguments.mtbf is None else float(arguments.mtbf)


def _search(arguments: argparse.Namespace, asked: _Asked, gpus: int) -> int:
    from ridgeline.planner import report

    found = _found(asked, gpus, arguments.jitter)
    if arguments.sweep:
        print(report.sweep(found))
    else:
        text = [report.layouts(asked.job, found, asked.machine, arguments.top)]
        _show(arguments, asked, gpus, found, text)
    return 0


def _will_it_fit(arguments: argparse.Namespace, asked: _Asked, gpus: int) -> int:
    from ridgeline.planner.search import Search, fewest_gpus, search

    name = asked.machine.cluster.gpu.name
    found = search(asked.job, gpus, asked.software, asked.machine).found if gpus else []
    if found:
        roomy = next((one for one in found if one.verdict == "fits"), found[0])
        _show(arguments, asked, gpus, Search([roomy], 1), [f"{roomy.verdict}: {roomy.layout}"])
        return 0
    least = fewest_gpus(*asked[:3])
    if least is None:
        print(f"{asked.job.shape.name} fits on no number of {name}s that was tried")
        return 1
    text = [f"does not fit on {gpus} x {name}"] if gpus else []
    text.append(f"the fewest on which it fits are {least[0]}: {least[1].layout}")
    _show(arguments, asked, least[0], Search([least[1]], 1), text)
    return 1 if gpus else 0


def _how_many(arguments: argparse.Namespace, asked: _Asked) -> int:
    from ridgeline.planner.search import Search, gpus_for

    if not arguments.tokens:
        raise BadValueError("--days needs --tokens", help="such as --tokens 2T")
    tokens = number(arguments.tokens)
    found = gpus_for(*asked[:3], tokens, arguments.days * 86400)
    if found is None:
        return _too_soon(asked, tokens, arguments.days)
    gpus, best = found
    text = [
        f"{gpus:,} GPUs are the fewest tried that do it in {arguments.days:g} days:",
        f"{best.layout}: {best.tokens:,.1f} {asked.job.shape.unit}/s/GPU (modelled)",
    ]
    _show(arguments, asked, gpus, Search([best], 1), text)
    return 0


def _too_soon(asked: _Asked, tokens: float, days: float) -> int:
    """Say that a run cannot be that short, and how short it can be."""
    from ridgeline.planner.search import fastest

    unit = asked.job.shape.unit
    print(
        f"no number of {asked.machine.cluster.gpu.name}s that was tried trains on {tokens:.3g} "
        f"{unit} in {days:g} days with {_batch(asked.job)} a step; a larger batch lets "
        "more of them work"
    )
    best = fastest(*asked[:3])
    if best is not None:
        gpus, one = best
        takes = tokens / (one.tokens * gpus) / 86400
        print(f"the nearest: {takes:,.1f} days on {gpus:,} GPUs, {one.layout} (modelled)")
    return 1


def _explain(arguments: argparse.Namespace, asked: _Asked, gpus: int) -> int:
    from ridgeline.planner import report
    from ridgeline.planner.layout_words import check_layout, layout_of
    from ridgeline.planner.search import Search, candidate, search

    layout = layout_of(arguments.explain, gpus)
    layout = layout.with_(
        data_outermost=asked.machine.cluster.pod > 0, split_experts=asked.software.split_experts
    )
    check_layout(asked.job, layout)
    one = candidate(*asked[:3], layout, arguments.jitter)
    text = [f"{layout}: {one.tokens:,.1f} {asked.job.shape.unit}/s/GPU, {one.verdict} (modelled)"]
    found = search(asked.job, layout.ranks, asked.software, asked.machine).found
    if found:
        against = report.given_up(asked.job, one, found[0]).removeprefix("; ")
        text.append(f"the best that a search finds: {found[0].tokens:,.1f}, {found[0].layout}")
        text.append(f"against it: {against or 'the same'}")
    _show(arguments, asked, layout.ranks, Search([one], 1), text)
    return 0 if one.verdict != "does not fit" else 1


def _validate(arguments: argparse.Namespace) -> int:
    from ridgeline.planner.constants import DEFAULT
    from ridgeline.planner.published import published_runs
    from ridgeline.planner.validation import fit
    from ridgeline.planner.validation_report import validation_text

    known = published_runs()
    constants = DEFAULT
    if arguments.refit:
        constants = fit([run for run in known if run.tokens is not None])
    runs = published_runs(arguments.runs) if arguments.runs else known
    print(validation_text(runs, known, constants))
    return 0
