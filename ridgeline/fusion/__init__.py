"""Fusion: which nodes share a kernel, decided by the roofline time that sharing saves."""
