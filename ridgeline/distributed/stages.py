"""The assignment of parameters to pipeline stages.

The blocks of a model, its longest list of layers, are shared out in their order; what comes before
them is on the first stage, what comes after on the last. A parameter that is used on both, such as
a tied embedding, is on both.
"""

from __future__ import annotations

from ridgeline import nn
from ridgeline.distributed.plan import Plan
from ridgeline.errors import BadValueError
from ridgeline.models.language import LanguageModel
from ridgeline.sharding.mesh_shapes import split


def stages_of_parameters(
    model: nn.Module, ranks: int, plan: Plan
) -> dict[str, tuple[int, ...] | None]:
    """The stages along pp that have each parameter and buffer; all have what is not named."""
    if ranks == 1:
        return {}
    path, blocks = blocks_of(model)
    chunks = ranks * plan.chunks
    homes = [chunk % ranks for chunk in chunk_of_blocks(len(blocks), chunks, plan.stages)]
    found: dict[str, tuple[int, ...] | None] = {}
    before = True
    for name, _ in model.named_parameters():
        if name.startswith(f"{path}."):
            before = False
            number = int(name[len(path) + 1 :].partition(".")[0])
            found[name] = (homes[number],)
        else:
            found[name] = (0,) if before else (ranks - 1,)
    if isinstance(model, LanguageModel) and model.form == "words" and model.head is None:
        found["tokens.weight"] = (0, ranks - 1)
    return found


def boundaries(model: nn.Module, ranks: int, plan: Plan) -> list[tuple[nn.Module, int, int]]:
    """The blocks with which parts begin, with the part and that of the block before."""
    if ranks == 1:
        return []
    _, blocks = blocks_of(model)
    layers = list(blocks.children())
    chunks = chunk_of_blocks(len(layers), ranks * plan.chunks, plan.stages)
    before, found = 0, []
    for layer, part in zip(layers, chunks):
        if part != before:
            found.append((layer, part, before))
        before = part
    return found


def blocks_of(model: nn.Module) -> tuple[str, nn.Module]:
    """The longest list of layers, and its path."""
    lists = [
        (path, module)
        for path, module in model.named_modules()
        if isinstance(module, nn.ModuleList | nn.Sequential) and path
    ]
    if not lists:
        raise BadValueError(
            "stages and recomputation need a list of blocks, and this model has no nn.ModuleList",
            help="leave out pp and recompute, or put layers that follow one another into a list",
        )
    return max(lists, key=lambda each: len(list(each[1].children())))


def chunk_of_blocks(blocks: int, chunks: int, sizes: tuple[int, ...] = ()) -> list[int]:
    """The chunk of each block: as the plan says, or as equal as can be."""
    if sizes and (len(sizes) != chunks or sum(sizes) != blocks or min(sizes) < 0):
        raise BadValueError(
            f"stages {list(sizes)} are no split of {blocks} blocks into {chunks} chunks",
            help=f"give {chunks} numbers whose sum is {blocks}, or none",
        )
    if not sizes and blocks < chunks:
        raise BadValueError(
            f"{blocks} blocks cannot be split into {chunks} chunks",
            help="use fewer ranks along pp, or fewer chunks",
        )
    lengths = sizes or tuple(split(blocks, chunks, n)[1] for n in range(chunks))
    return [chunk for chunk, length in enumerate(lengths) for _ in range(length)]
