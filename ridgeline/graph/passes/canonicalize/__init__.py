"""Local rewrites, applied until none fits: algebra, casts, constants, movement."""
