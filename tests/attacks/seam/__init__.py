"""Programs whose values move between devices, and machines to run them on."""
