"""Differentiation and batching of graphs, and which values the backward pass keeps."""
