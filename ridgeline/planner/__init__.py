"""How to split a model over a cluster, how fast it will train and whether it fits, before paying.

A model is shapes (`shapes.py`), a cluster is data (`machines.py`), and what a framework fuses,
keeps and overlaps is a profile (`software.py`). A layout of ranks gives a layer's kernels
(`work.py`) and their times (`kernels.py`, `collectives.py`), memory by rank (`memory.py`) and a
step, simulated over the tables that `distributed.schedules` executes (`step.py`). `search.py` goes
through all layouts, and `validation.py` compares with published runs.
"""
