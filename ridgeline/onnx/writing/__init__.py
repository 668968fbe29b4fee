"""Graphs written as ONNX: `save.py` records a call, and rules by op write what it recorded."""
