"""Which model a word means: published ones by name, or one of a Python file by `file.py:name`."""

from __future__ import annotations

import difflib
import importlib.util
import re
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from ridgeline import nn
from ridgeline.errors import BadValueError, InputFileError, MissingFileError, RidgelineError
from ridgeline.models.gpt2 import CONFIGURATIONS as GPT2_SIZES, GPT2
from ridgeline.models.language import LanguageModel
from ridgeline.models.llama import CONFIGURATIONS as LLAMA_SIZES, Llama
from ridgeline.models.parts import Latent, Parts, of_layer
from ridgeline.models.resnet import ResNet
from ridgeline.models.vit import ViT
from ridgeline.planner.examples import example_of, sized_example
from ridgeline.planner.shapes import ModelShape
from ridgeline.planner.traced_models import traced_shape

T = TypeVar("T")
_NEEDED = "a plan needs a model, or a function without arguments that gives one"
_OWN: dict[str, Callable[[], LanguageModel]] = {
    "llama3-8b": lambda: Llama(LLAMA_SIZES["3-8B"]),
    "llama3-70b": lambda: Llama(LLAMA_SIZES["3-70B"]),
    "llama3-405b": lambda: Llama(LLAMA_SIZES["405B"]),
    "gpt2": lambda: GPT2(GPT2_SIZES["small"]),
    "gpt2-medium": lambda: GPT2(GPT2_SIZES["medium"]),
    "gpt2-large": lambda: GPT2(GPT2_SIZES["large"]),
    "gpt2-xl": lambda: GPT2(GPT2_SIZES["xl"]),
}


def _latent_model(name: str, heads: int, experts: int, words: int, dense: int) -> ModelShape:
    """A model of the shape of DeepSeek-V3."""
    return ModelShape(
        name, 61, 7168, heads, heads, 2048, True, words, latent=Latent(512, 1536, 128, 64, 128),
        experts=experts, chosen=8, shared_inner=2048, dense_layers=dense, dense_inner=18432,
    )  # fmt: skip


def _gpt(name: str, layers: int, hidden: int, heads: int, words: int) -> ModelShape:
    """A model of the shape of GPT-3."""
    return ModelShape(
        name, layers, hidden, heads, heads, 4 * hidden, False, words,
        tied=True, biased=True, learned_positions=2048,
    )  # fmt: skip


_PUBLISHED = {
    shape.name: shape
    for shape in (
        ModelShape("llama2-7b", 32, 4096, 32, 32, 11008, True, 32000),
        ModelShape("llama2-13b", 40, 5120, 40, 40, 13824, True, 32000),
        ModelShape("llama2-70b", 80, 8192, 64, 8, 28672, True, 32000),
        ModelShape("mixtral-8x7b", 32, 4096, 32, 8, 14336, True, 32000, experts=8, chosen=2),
        ModelShape("mixtral-8x22b", 56, 6144, 48, 8, 16384, True, 32768, experts=8, chosen=2),
        ModelShape("nemotron4-15b", 32, 6144, 48, 8, 24576, False, 256000),
        ModelShape("nemotron4-340b", 96, 18432, 96, 8, 73728, False, 256000),
        ModelShape("llama3.2-1b", 16, 2048, 32, 8, 8192, True, 128256, tied=True),
        ModelShape("llama3.2-3b", 28, 3072, 24, 8, 8192, True, 128256, tied=True),
        ModelShape("tinyllama-1.1b", 22, 2048, 32, 4, 5632, True, 32000),
        ModelShape("mistral-7b", 32, 4096, 32, 8, 14336, True, 32000, window=4096),
        ModelShape("qwen2.5-7b", 28, 3584, 28, 4, 18944, True, 152064),
        ModelShape("qwen2.5-32b", 64, 5120, 40, 8, 27648, True, 152064),
        ModelShape("qwen2.5-72b", 80, 8192, 64, 8, 29568, True, 152064),
        ModelShape("qwen3-8b", 36, 4096, 32, 8, 12288, True, 151936, head_size=128),
        ModelShape("qwen3-32b", 64, 5120, 64, 8, 25600, True, 151936, head_size=128),
        ModelShape(
            "qwen3-30b-a3b",
            48,
            2048,
            32,
            4,
            768,
            True,
            151936,
            head_size=128,
            experts=128,
            chosen=8,
        ),
        ModelShape(
            "qwen3-235b-a22b",
            94,
            4096,
            64,
            4,
            1536,
            True,
            151936,
            head_size=128,
            experts=128,
            chosen=8,
        ),
        ModelShape(
            "gpt-oss-20b",
            24,
            2880,
            64,
            8,
            2880,
            True,
            201088,
            head_size=64,
            window=128,
            windowed=0.5,
            experts=32,
            chosen=4,
        ),
        ModelShape(
            "gpt-oss-120b",
            36,
            2880,
            64,
            8,
            2880,
            True,
            201088,
            head_size=64,
            window=128,
            windowed=0.5,
            experts=128,
            chosen=4,
        ),
        _latent_model("deepseek-v3", 128, 256, 129280, 3),
        _latent_model("kimi-k2", 64, 384, 163840, 1),
        _gpt("gpt3-5b", 24, 4096, 32, 50304),
        _gpt("gpt3-20b", 44, 6144, 48, 50304),
        _gpt("gpt3-175b", 96, 12288, 96, 50304),
        _gpt("gpt-530b", 105, 20480, 128, 51200),
        _gpt("gpt-1t", 128, 25600, 160, 51200),
    )
}


# Models that are traced, with the sizes of one sample.
_TRACED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "resnet50": (ResNet, "3x224x224"),
    "vit-b16": (ViT, "3x224x224"),
}


def names() -> list[str]:
    """All names of models."""
    return [*_OWN, *_PUBLISHED, *_TRACED]


def shape_named(word: str, sizes: str | None = None, example: str | None = None) -> ModelShape:
    """The shape that a word means; a model of ours is built without memory and looked at.

    A module that is no language model is traced: on a sample of `sizes`, such as `3x224x224`, or on
    what its file has by the name `example`.
    """
    if ":" in word or word.endswith(".py"):
        module = module_of_file(word)
        model = model_in_file(word, module)
        if sizes is None and example is None and _is_language_model(model):
            # Unlike a name, which stands for any length, it takes so many tokens and no more.
            return replace(shape_of(model, word), longest=model.parts.context)
        return _traced(model, word, sizes, example, module)
    key = _spelled(word)
    if key in _PUBLISHED:
        return _PUBLISHED[key]
    if key in _TRACED:
        make, usual = _TRACED[key]
        with nn.deferred():
            return traced_shape(make(), sized_example(sizes or usual), key)
    if sizes or example:
        raise BadValueError(
            f"{word} is a language model, whose input is known",
            help="leave out --input and --example, and give --seq",
        )
    if key not in _OWN:
        near = difflib.get_close_matches(key, names(), 1, 0.0)
        raise BadValueError(
            f"there is no model {word!r}",
            help=f"the nearest is {near[0]!r}; there are {', '.join(names())}, and a model of "
            "yours as file.py:name",
        )
    return shape_of(own_model(key), key)


def _spelled(word: str) -> str:
    """A model's name as it is here, of how others write it: `meta-llama/Llama-3.1-8B-Instruct`."""
    key = word.lower().rpartition("/")[2].replace("_", "-")
    key = re.sub(r"-(instruct|chat|base|hf|it|v0\.\d)+$", "", key)
    if key in names():
        return key
    return re.sub(r"^llama3\.[13]-", "llama3-", re.sub(r"^(meta-)?llama-", "llama", key))


def own_model(name: str) -> LanguageModel:
    """A model of `ridgeline.models` by the planner's name for it, without memory."""
    with nn.deferred():
        return _OWN[name]()


def _is_language_model(model: Any) -> bool:
    return isinstance(model, LanguageModel) and isinstance(getattr(model, "parts", None), Parts)


def _traced(
    model: Any, word: str, sizes: str | None, example: str | None, module: ModuleType
) -> ModelShape:
    """A module of a file, traced on its example input."""
    if not isinstance(model, nn.Module):
        raise BadValueError(
            f"{word} is of type {type(model).__name__}, expected a ridgeline.nn.Module",
            help="name a model, or a function without arguments that gives one",
        )
    with nn.deferred():
        if sizes is not None:
            given = sized_example(sizes)
        else:
            given = run_of_file(word, lambda: example_of(module, example, word))
        advice = "the example has to be what forward() takes: --input a,b for two inputs"
        return run_of_file(word, lambda: traced_shape(model, given, word), advice)


def shape_of(model: LanguageModel, name: str) -> ModelShape:
    """The shape of a language model of ours, of any family."""
    parts: Parts = model.parts
    layers = range(parts.layers)
    experts = of_layer(parts.experts, parts.layers - 1)
    without = sum(of_layer(parts.experts, layer) is None for layer in layers) if experts else 0
    windows = [of_layer(parts.windows, layer) for layer in layers]
    near = [window for window in windows if window]
    return ModelShape(
        name, parts.layers, parts.width, parts.heads, parts.shared_heads or parts.heads,
        parts.inner if experts is None else experts.inner, parts.gated, parts.vocabulary,
        head_size=parts.head_size or 0,
        tied=parts.tied,
        biased=parts.norm.startswith("layer") and parts.query_bias,
        dropout=parts.dropout > 0,
        drops_scores=parts.attention_dropout > 0,
        learned_positions=parts.context if parts.positions == "learned" else 0,
        parallel_block=parts.residual.startswith("parallel"),
        window=max(near, default=0),
        windowed=len(near) / parts.layers if near else 1.0,
        latent=parts.latent,
        experts=1 if experts is None else experts.count,
        chosen=1 if experts is None else experts.chosen,
        shared_inner=0 if experts is None else experts.shared_inner,
        dense_layers=without,
        dense_inner=parts.inner if without else 0,
        counted=model.parameter_count(),
    )  # fmt: skip


def module_of_file(word: str) -> ModuleType:
    """The file of `file.py:name`, run, without memory for parameters."""
    path = word.partition(":")[0]
    file = Path(path)
    if not file.is_file():
        raise MissingFileError(f"there is no file {path}", help="give a model as file.py:name")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise InputFileError(f"{path} is no Python file", help="give a model as file.py:name")
    module = importlib.util.module_from_spec(spec)
    with nn.deferred():
        run_of_file(path, partial(spec.loader.exec_module, module))
    return module


def model_in_file(word: str, module: ModuleType) -> Any:
    """What `file.py:name` holds; a function or class is called, without memory for parameters."""
    path, _, name = word.partition(":")
    with nn.deferred():
        wanted = name or "model"
        if not hasattr(module, wanted):
            modules = (nn.Module, FunctionType, type)
            there = [n for n, value in vars(module).items() if isinstance(value, modules)]
            near = difflib.get_close_matches(wanted, there, 1, 0.0)
            raise InputFileError(
                f"{path} has no {wanted!r}",
                help=f"the nearest is {path}:{near[0]}" if near else "give file.py:name",
            )
        found = getattr(module, wanted)
        if isinstance(found, nn.Module) or not callable(found):
            return found
        return run_of_file(word, found)


def run_of_file(what: str, function: Callable[[], T], advice: str = _NEEDED) -> T:
    """What a function of the user's gives; what it raises is one message, with its line."""
    try:
        return function()
    except RidgelineError:
        raise
    except (Exception, SystemExit) as error:
        path = str(Path(what.partition(":")[0]).resolve())
        lines = traceback.extract_tb(error.__traceback__)
        where = [one.lineno for one in lines if str(Path(one.filename).resolve()) == path]
        raise InputFileError(
            f"{what} fails with {type(error).__name__}: {error}",
            note=f"in line {where[-1]}" if where else "",
            help=advice,
        ) from error
