"""Graph passes, one a file: each takes nodes and gives nodes."""
