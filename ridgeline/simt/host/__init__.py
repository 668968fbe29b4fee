"""Thread programs on a CPU: a warp is a vector of 32 lanes with a mask, a block one task."""
