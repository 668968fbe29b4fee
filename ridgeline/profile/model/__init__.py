"""Modelled costs: what an op must compute and move, and what a GPU can do."""
