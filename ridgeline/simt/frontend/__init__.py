"""From the source of a Python function to the thread IR."""
