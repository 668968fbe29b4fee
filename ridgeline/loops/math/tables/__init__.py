"""Coefficients of the expansions, a file for a family of functions."""
