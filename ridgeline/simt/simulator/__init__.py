"""The simulator: threads of many blocks as wide vectors, with every check a GPU does not make."""
