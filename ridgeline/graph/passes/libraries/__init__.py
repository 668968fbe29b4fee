"""What the libraries of a device compute is recognised in the graph, with their epilogues."""
