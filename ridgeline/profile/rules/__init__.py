"""The diagnosis rules: data and predicates by family, and the engine that weighs them."""
