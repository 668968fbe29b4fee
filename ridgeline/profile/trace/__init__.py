"""Reading torch.profiler traces: files, the streaming JSON scanner, columns of events."""
