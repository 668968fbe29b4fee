"""What no backend has is written out: composite ops, complex numbers, updates, sorts, sizes."""
