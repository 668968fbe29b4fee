"""The CUDA runtime: devices, streams, memory, modules, graphs, on NVIDIA's driver bindings.

Nothing here is imported before a program asks for a GPU, and nothing outside needs its packages.
"""
