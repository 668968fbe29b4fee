"""Execution: recorded work is interpreted or compiled, and its programs are kept by structure."""
