"""What runs compiled code: memory, threads, plans."""
