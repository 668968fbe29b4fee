"""Ways in which Python programs keep state, read it and change it, as texts to combine."""
