"""Rewrites of what no backend has: composite ops, complex numbers, updates, sorts, sizes."""
