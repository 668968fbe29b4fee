"""Graphs over a mesh of ranks: placements, one rule per family of ops, the share of one rank.

A mesh is a device. A program records what is computed of whole values on it; when that is to run,
`partition.py` writes the share of the calling rank down as a graph over its own device, with
collectives where ranks need of each other.
"""
