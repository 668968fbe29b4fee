"""Data that lies in files: images, text, arrays, tables, and the classic sets in their formats."""
