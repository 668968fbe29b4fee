"""The loop IR as text: the printer, and the parser that reads it back."""
