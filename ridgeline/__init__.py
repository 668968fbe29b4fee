"""Ridgeline: deep learning, from a line of Python to the roofline."""

__version__ = "0.1.0"
