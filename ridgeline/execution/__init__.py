"""Flushes: recorded work is interpreted or compiled; programs are cached by structure."""
