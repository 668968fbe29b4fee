"""What `ridgeline train MODEL` trains: a model, its data, optimizer and schedule, ready to run."""

from ridgeline.train.recipes import images
from ridgeline.train.recipes.base import Prepared, Recipe, Settings

RECIPES: dict[str, Recipe] = {**images.RECIPES}

__all__ = ["RECIPES", "Prepared", "Recipe", "Settings"]
