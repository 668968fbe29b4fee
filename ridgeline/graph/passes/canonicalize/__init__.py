"""Local rewrites of the graph, applied until none fits: algebra, casts, constants, movement."""
