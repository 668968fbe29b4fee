"""The `ridgeline` command: one module per verb, each registering its own arguments."""
