"""How ranks talk to each other, behind one small interface.

`interface.py` says what a `Communicator` does; `threads.py`, `mpi.py` and `record.py` are kinds of
it. Which one the calling rank has is kept in `current.py`. What a rank calls is counted
(`counters.py`), and what it does is written down for its launcher (`status.py`).
"""
