"""From a trace to facts: steady steps, what launched what, busy and idle time."""
