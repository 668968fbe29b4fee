"""Programs ahead of time: a jitted function as one file that runs without a compiler."""
