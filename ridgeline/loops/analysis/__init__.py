"""Static analysis of loops: counts, bounds, footprints, aliasing."""
