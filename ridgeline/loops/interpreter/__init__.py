"""The loop IR run by NumPy: the reference that generated code is compared with."""
