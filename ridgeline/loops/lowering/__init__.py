"""From a group of graph nodes to loops."""
