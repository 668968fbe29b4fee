"""The loop IR as text."""
