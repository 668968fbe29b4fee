"""The record core: memory as cells, thread modes, and pending work."""
