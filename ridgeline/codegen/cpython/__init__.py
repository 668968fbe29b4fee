"""Functions of the package as machine code over CPython's objects.

What is called a hundred times in every step costs more in the interpreter than it computes. Such a
function can be compiled from its own source, so that both forms are one algorithm. It may use
little: locals, `if` and loops over tuples, lists and dictionaries, attributes in `__slots__`,
identity, types, comparisons of numbers, new objects and containers, calls of other such functions.

- **It runs no Python code.** Where that would be needed, or a value has another type than its
  declaration says, a compiled call *bails out*: it gives `BAILED`, and its caller has Python do it.
  It may not do so after it changed what others see, which is checked at run time. So nothing comes
  between its parts: no signal's handler, no other thread, no finalizer.
- **Memory safety needs no trust in declarations.** The type of an object is compared before a slot
  is read. Where slots lie was found by looking (`layout.py`), and functions of the stable ABI do
  all else. References are borrowed from whoever holds the arguments; new objects, and those whose
  place others take, are released when the outermost call is over (`helpers.py`).
- `translate.py` turns the syntax tree of functions into LLVM IR, by `expressions.py` and
  `statements.py`. `compiled.py` keeps the machine code on disk and makes functions of it.
"""
