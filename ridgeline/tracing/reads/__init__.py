"""What a traced function read from Python, and how a change of it is noticed.

`source` finds the text of a function, `rewrite` turns it into a copy in which every read and call
reports itself, and `copies` makes that copy callable. While jit traces, `recorder` takes the
reports: `attributes`, `calls`, `natives` and `operations` say what each of them reads. What comes
out is a list of reads (`notes`), from which `holds` generates the function that compares them
before a replay, or a reason why no comparison would do: then the trace is *open*, and every call
runs Python again.
"""
