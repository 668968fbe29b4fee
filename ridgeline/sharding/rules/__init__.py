"""How placements pass through ops: one rule per family, and one for ops that are special."""
