"""Attacks: hostile trials of what the documents promise, short in CI and long on demand."""
