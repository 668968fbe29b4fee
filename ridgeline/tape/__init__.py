"""Tapes: known sequences of public calls, matched instead of recorded (see `entries.py`)."""
