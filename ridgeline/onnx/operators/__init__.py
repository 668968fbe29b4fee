"""The operators of ONNX, one row each, in files by family; `table.py` finds them."""
