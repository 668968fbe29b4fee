"""The op table: one row per primitive, grouped by family, and builders over it.

Import a family's builders from its module (`from ridgeline.ops import movement`). Builders take
and give graph nodes, check their operands, and drop work that is a no-op by construction.
"""
