"""The CPU runtime: a native thread pool and plan executor, and what this machine can do."""
