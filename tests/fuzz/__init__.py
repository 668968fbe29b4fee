"""Random programs over the public API, run every way and compared."""
