"""The computation graph: nodes, sizes, where nodes were made, the interpreter, the passes."""
