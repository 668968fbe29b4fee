"""What `ridgeline train MODEL` trains: a model, its data, optimizer and schedule, ready to run."""

from ridgeline.train.recipes import generative, graphs, images, masked, segmentation, text
from ridgeline.train.recipes.base import Options, Prepared, Recipe, Settings

RECIPES: dict[str, Recipe] = {
    **images.RECIPES, **segmentation.RECIPES, **generative.RECIPES, **text.RECIPES,
    **masked.RECIPES, **graphs.RECIPES,
}  # fmt: skip

__all__ = ["RECIPES", "Options", "Prepared", "Recipe", "Settings"]
