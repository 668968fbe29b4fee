"""Linear algebra: the standard's extension."""
