"""Packages named torch and torchvision that mean Ridgeline, put on the path by `ridgeline run`."""
