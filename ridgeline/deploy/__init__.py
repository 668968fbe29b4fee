"""Ahead-of-time compilation: a jitted function as one file that runs without a compiler."""
