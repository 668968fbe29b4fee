"""Train a model and say how well it does.

The run is written to a folder: `checkpoint.safetensors` (all that is needed to go on),
`model.safetensors` (the weights alone), `log.jsonl` (what happened) and events for TensorBoard.
Without `--out` each run has a folder of its own: runs/lenet, runs/lenet-2 and so on; a folder that
was named and holds a run already is refused. Ctrl-C saves and stops; `--resume` goes on with the
run in a folder, the last one unless named, and gives the numbers of one that was never stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import time
from pathlib import Path
from typing import Any

from ridgeline.errors import BadValueError

NAME = "train"
HELP = "train a model on your data or on what comes with it"
# the keys of ridgeline.train.recipes.RECIPES, which is slow to import
MODELS = (
    "lenet", "mlp", "vgg11", "resnet18", "resnet34", "resnet50", "vit", "unet", "autoencoder",
    "vae", "gan", "lstm", "gpt2", "llama", "bert", "gcn",
)  # fmt: skip


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number above 0")
    return value


def _share(text: str) -> float:
    value = _rate(text)
    if value >= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and 1")
    return value


def _axes(text: str) -> dict[str, int]:
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(equals and size.isdigit() and int(size) for _, equals, size in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is no mesh, such as dp=2,tp=2")
    return {name.strip(): int(size) for name, _, size in pairs}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options; those left out take the model's own defaults, or the resumed run's."""
    parser.add_argument("model", choices=MODELS, help="what to train")
    parser.add_argument("--data", help="a folder of images or a text file (the bundled digits)")
    parser.add_argument("--epochs", type=_whole, help="passes over the training data")
    parser.add_argument("--batch-size", type=_whole, help="samples per step")
    parser.add_argument("--lr", type=_rate, help="highest learning rate")
    parser.add_argument("--seed", type=_seed, help="of the weights, order and augmentation (0)")
    parser.add_argument("--accumulate", type=_whole, help="steps per update of the weights (1)")
    parser.add_argument("--clip", type=_rate, help="largest norm of the gradients (not clipped)")
    parser.add_argument("--ema", type=_share, help="decay of an average of the weights (none)")
    parser.add_argument("--length", type=_whole, help="tokens in a window of text (64)")
    parser.add_argument(
        "--validation", type=_share, help="share of the training data to measure each epoch (none)"
    )
    parser.add_argument(
        "--precision", choices=("float32", "bfloat16"), help="of matrix products (float32)"
    )
    parser.add_argument("--workers", type=_seed, default=0, help="processes that load data (0)")
    parser.add_argument("--device", default="cpu", help="where to train (cpu)")
    parser.add_argument(
        "--mesh", type=_axes, metavar="dp=2,tp=2", help="ranks that share the work; starts them"
    )
    parser.add_argument("--plan", type=Path, help="a JSON plan for the mesh (see ridgeline plan)")
    parser.add_argument("--out", type=Path, help="folder for the run (runs/MODEL, numbered)")
    parser.add_argument("--resume", action="store_true", help="go on from the folder's checkpoint")
    parser.add_argument("--quiet", action="store_true", help="only the result")
    parser.add_argument("--json", action="store_true", help="the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Train, test, report; 130 when the user stopped the run."""
    from rich.console import Console

    from ridgeline.train.display import Display
    from ridgeline.train.events import SummaryWriter
    from ridgeline.train.interrupt import Interrupt
    from ridgeline.train.log import RunLog
    from ridgeline.train.loop import CHECKPOINT, drive
    from ridgeline.train.recipes import RECIPES, Options

    began = time.perf_counter()
    if arguments.mesh is not None:
        from ridgeline.train.mesh_training import begun_ranks, options_of

        code = begun_ranks(arguments, _folder)
        if code is not None:
            return code
        options, out, own = options_of(arguments)
    else:
        own = out = _folder(arguments)
        options = Options(arguments.workers, arguments.device)
    recipe = RECIPES[arguments.model]
    settings = _settings(arguments, recipe.defaults, out / CHECKPOINT)
    with RunLog(own / "log.jsonl") as log, Interrupt() as interrupt:
        prepared = recipe.prepare(settings, options)
        training = prepared.run
        if (training.mesh is None) is not (arguments.mesh is None):
            raise BadValueError(
                f"{arguments.model} is not trained on a mesh",
                help="language models and classifiers of images are",
            )
        if arguments.resume:
            training.restore(out / CHECKPOINT)
        steps = len(training.loader)
        quiet = arguments.quiet or own != out
        display = Display(Console(stderr=True), settings.epochs, steps, quiet)
        display.say(prepared.title)
        log.write("start", **dataclasses.asdict(settings), resumed=arguments.resume)
        with display.live(training.progress.total_steps), SummaryWriter(own) as events:
            finished = drive(training, settings.epochs, out, display, log, interrupt, events)
        if not finished:
            display.say(
                f"stopped; go on with: ridgeline train {arguments.model} --out {out} --resume"
            )
            return interrupt.exit_code
        return _report(arguments, out, prepared, log, time.perf_counter() - began)


def _folder(arguments: argparse.Namespace) -> Path:
    """Where the run is written: a folder without a run, unless one is to be gone on with."""
    from ridgeline.train.folders import check_free, last_folder, new_folder

    named: Path | None = arguments.out
    if named is None:
        first = Path("runs", str(arguments.model))
        return last_folder(first) if arguments.resume else new_folder(first)
    if not arguments.resume:
        check_free(named, "--resume")
    return named


def _settings(arguments: argparse.Namespace, defaults: Any, checkpoint: Path) -> Any:
    """The recipe's defaults or the resumed run's settings, replaced by the options given."""
    given = {
        field.name: getattr(arguments, field.name)
        for field in dataclasses.fields(defaults)
        if getattr(arguments, field.name) is not None
    }
    if not arguments.resume:
        return dataclasses.replace(defaults, **given)
    from ridgeline.train.checkpoint import load_checkpoint
    from ridgeline.train.loop import check_settings

    if arguments.mesh is not None:
        from ridgeline.train.mesh_training import saved_settings

        saved = saved_settings(checkpoint)
    else:
        saved = load_checkpoint(checkpoint).get("settings", {})
    check_settings(saved, given, checkpoint)
    known = {field.name for field in dataclasses.fields(defaults)}
    return dataclasses.replace(defaults, **{k: v for k, v in saved.items() if k in known})


def _report(
    arguments: argparse.Namespace, out: Path, prepared: Any, log: Any, seconds: float
) -> int:
    """Test the model, store its weights, print the result and where the time went."""
    from rich.console import Console

    from ridgeline.train.checkpoint import save_weights
    from ridgeline.train.profile import profile_table

    model = prepared.model
    figures = prepared.evaluate(model)
    if arguments.mesh is not None:
        from ridgeline.train.mesh_training import whole_weights

        weights = whole_weights(model)
        if prepared.run.mesh.rank:
            return 0  # the first rank says what came of it
        save_weights(out / "model.safetensors", weights)
    else:
        save_weights(out / "model.safetensors", model.state_dict())
    result = {**figures, "seconds": round(seconds, 3), "out": str(out)}
    log.write("test", **result)
    alone = arguments.mesh is None
    said = prepared.present(model, out) if prepared.present is not None and alone else ""
    if arguments.json:
        print(json.dumps(result))
        return 0
    print(f"{_shown(figures)}  in {seconds:.1f} s  weights in {out / 'model.safetensors'}")
    if said:
        print(said)
    if not arguments.quiet and alone:
        table = profile_table(prepared.run, next(iter(prepared.run.loader)))
        if table is not None:
            Console(stderr=True).print(table)
    return 0


def _shown(figures: dict[str, float]) -> str:
    """Figures as text; an accuracy is a share."""
    return "  ".join(
        f"{name.replace('_', ' ')} " + (f"{value:.2%}" if "accuracy" in name else f"{value:.4f}")
        for name, value in figures.items()
    )
