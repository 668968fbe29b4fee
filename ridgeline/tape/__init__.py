"""Tapes: known sequences of public calls, matched instead of recorded (see `entries.py`).

What holds at every moment: each tensor that anybody can get hold of is in a state which the plain
recorder could have left it in, but that its cell may have no node yet.

- `Run.leave` is the only way from a cell without a node to one with it. Reading `cell.node` goes
  there, and `settle`, which everybody calls who is about to change a cell, and so do `live`,
  `tracked` and every call that is not the known one; from any thread, for `cell.run` says whose
  calls they are. It makes the matched calls on cells of its own, and gives everybody all of their
  results in one step (`earnest.py`), so that an interrupt leaves either nothing or everything done.
- A flush leaves results that keep a graph as leaves that know its calls (`GraphJoint`), which are
  made again should somebody need the graph. Backward passes go through the calls of one flush
  after the other, by programs of their own (`segments.py`).
- A match means that recording would give the same nodes. So all that shapes what a call records is
  compared: arguments, modes, line, defaults, how gradients stand, and what the call asked about
  values (`Look`). A call that goes by values in another way is on no tape.
- A flush of matched calls runs the program that their recording ran, over memory from outside. An
  input of it that is no such memory, no draw and no variable was made of constants by the calls.
"""
