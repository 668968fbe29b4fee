"""The record core: memory as cells, the modes of a thread, and work that waits to be computed."""
