"""Graph passes, by subject: each is a function from a graph to a graph."""
