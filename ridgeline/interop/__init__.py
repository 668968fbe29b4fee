"""Interchange with other libraries: DLPack, the buffer protocol, arrays of any kind."""
