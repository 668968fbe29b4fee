"""What a GPU would do with a launch: counts per line, occupancy, a timing model, the report."""
