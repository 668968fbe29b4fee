"""Schedule steps, one a file: each is a checked rewrite of a kernel's loops."""
