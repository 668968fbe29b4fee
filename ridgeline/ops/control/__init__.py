"""Control flow: nodes that hold bodies. `branch` chooses one, `repeat` runs while a test holds,
`loop` runs a known number of times over slices of arrays."""
